"""Routing statistics as files: opened here, understood by ``cluster_models.routing_readers``."""

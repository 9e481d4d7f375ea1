"""Routing statistics as files: opened here, understood by ``readers.routing``."""

"""Nodes of Kubernetes in JSON, YAML and tables."""

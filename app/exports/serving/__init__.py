"""Exports of serving plans: servers of each engine, and what starts them on hosts or on Kubernetes."""

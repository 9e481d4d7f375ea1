"""The files users write and the bodies they send: pydantic models with units in names, and their readers.

Each document converts to the frozen values of ``cluster_models`` and back; nothing else in the product
knows GiB, Gbit/s or microseconds.
"""

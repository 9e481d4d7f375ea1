"""The nouns of the planner: clusters as measured, models, workloads and plans, as frozen values.

Nothing here reads a file (except this package's own ``data/``), opens a socket or knows a database.
Inside, units are SI: seconds, bytes, FLOP, bytes per second.
"""

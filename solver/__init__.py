"""The verbs of the planner: pure functions from clusters, models and workloads to plans.

The same inputs, seed and effort give the same plan.  No database, no HTTP, no clock but a deadline handed in.
"""

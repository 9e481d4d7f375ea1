"""Pipeline schedules: their event graph, its simulation, and the period of the steady state."""

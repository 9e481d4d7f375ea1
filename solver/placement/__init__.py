"""Which node plays which part: the problem, a compiled local search, bounds, and the integer program."""

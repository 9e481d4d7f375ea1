"""How many nodes each job of a fleet gets: curves from the planner, an integer program, plans on disjoint nodes."""

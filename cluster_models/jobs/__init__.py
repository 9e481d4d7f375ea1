"""Jobs that run on a cluster, and decisions about them after failures."""

"""Jobs that run on a cluster, their plans and their GPUs."""

"""Training: workloads, frameworks, placement rules and plans."""

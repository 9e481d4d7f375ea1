"""A cluster as it was measured: GPU and node kinds, nodes and their graph, samples, snapshots."""

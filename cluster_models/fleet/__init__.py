"""Fleets: several training jobs that share out the GPUs of a cluster and of offers to rent."""

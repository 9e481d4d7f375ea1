"""After failures: one decision for all jobs that they touched."""

"""One decision after failures for all jobs that they touched."""

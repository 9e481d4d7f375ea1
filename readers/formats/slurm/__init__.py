"""Output and configuration of Slurm."""

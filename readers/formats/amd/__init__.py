"""Output of amd-smi and rocm-smi."""

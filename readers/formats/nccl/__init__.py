"""Logs, sweeps and topology files of NCCL and RCCL."""

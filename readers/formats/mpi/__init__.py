"""Benchmarks that run under MPI: OSU, mpiGraph, GPCNeT."""

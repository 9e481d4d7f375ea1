"""Tests of the benchmarks that measure on real machines."""

"""Calibrations on own measurements, and runs to measure next."""

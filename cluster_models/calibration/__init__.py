"""Measured runs and profiles, and the parameters fitted to them."""

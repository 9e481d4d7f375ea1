"""Fits the parameters of the cost model to measured runs."""

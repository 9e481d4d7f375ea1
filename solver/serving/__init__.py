"""Serving: time, memory and steady state of a configuration under a load (docs/serving.md derives the model)."""

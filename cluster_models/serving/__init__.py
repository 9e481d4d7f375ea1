"""Serving: requests, engines, workers, goals and plans."""

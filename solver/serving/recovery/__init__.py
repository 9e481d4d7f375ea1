"""Serving deployments after failures: what lives on, what starts anew, and what that is worth."""

"""Tests and inventories of IP networks."""

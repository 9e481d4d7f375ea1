"""Decisions on failures: opened, solved, approved, carried out."""

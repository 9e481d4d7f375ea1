"""Readers of what other tools print: text in, facts out."""

"""Readers of the output of other tools: pure functions from text to facts, and from facts to a proposal."""

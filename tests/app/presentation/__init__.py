"""Tests of words and figures."""

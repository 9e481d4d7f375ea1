"""Files of SuperBench."""

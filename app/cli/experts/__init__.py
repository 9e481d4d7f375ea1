"""``meshwright experts``."""

"""Legal combinations of degrees, splits of layers over stages, and an optimistic price for each."""

"""Which combinations of degrees are legal, how layers split over stages, and an optimistic price for each."""

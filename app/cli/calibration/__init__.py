"""Commands that calibrate and choose experiments."""

"""Feedback on plans: measured runs beside their predictions, drift, slow parts, recalibration."""

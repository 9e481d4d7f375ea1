"""What became of plans: measured runs beside their predictions, drift, slow parts, recalibration."""

"""Signs of trouble in logs and health checks."""

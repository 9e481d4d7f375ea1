"""Own configurations read, priced, and compared with a plan."""

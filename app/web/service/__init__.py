"""Pages of access, audit and connections."""

"""Tables, engine and migrations; the rest of the service sees sessions only."""

"""Meaning of signs of trouble of other systems: one table each, for the importer and for event readers."""

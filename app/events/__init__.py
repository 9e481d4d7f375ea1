"""Reports of failures from monitoring systems, each in its own words, turned into one kind of event."""

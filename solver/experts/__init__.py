"""Where experts live: copies and places that balance ranks and spare the links between nodes."""

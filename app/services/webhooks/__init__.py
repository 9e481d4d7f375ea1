"""Messages to other programs."""

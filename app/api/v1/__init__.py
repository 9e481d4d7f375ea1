"""Version 1 of the HTTP API: each module parses, calls one service function, and answers."""

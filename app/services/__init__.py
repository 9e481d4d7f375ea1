"""Use cases.  Every function takes a session and keyword arguments, and leaves the commit to its caller."""

"""Plain server-rendered pages over the same services as the HTTP API."""

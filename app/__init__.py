"""The service: HTTP API, pages, database, jobs, exports and the command line."""

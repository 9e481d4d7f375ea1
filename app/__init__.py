"""The service: HTTP API, pages, database, jobs, exports and the command line."""

import gc

# Modules, routes and models stay until the end; looking through them for garbage takes a fifth of every start.
gc.set_threshold(100_000, 20, 20)

"""Pure functions from domain values to what a page shows: words, tables and the geometry of drawings."""

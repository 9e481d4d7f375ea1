"""Pages of routing statistics and maps of experts."""

"""Pages of clusters: imports, links, measurements, what holds their GPUs."""

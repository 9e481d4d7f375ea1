"""Reports about the health of a cluster's parts, and whom they touch."""

"""Pages of plans of training and serving: forms, results, drawings."""

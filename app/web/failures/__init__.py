"""Pages of jobs, failures and decisions on them."""

"""Commands about jobs, failures and decisions on them."""

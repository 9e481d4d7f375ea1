"""Commands that run the service and keep its databases."""

"""Commands about measured runs."""

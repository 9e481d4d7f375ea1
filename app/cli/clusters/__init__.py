"""Commands about clusters: import, show, measure."""

"""Links between nodes: classes, tables of measured times, spread, and what looks wrong about them."""

"""Frame of every reader: sources, lines, facts, findings, and figures as tools print them."""

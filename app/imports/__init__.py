"""Files that engineers have, read without storing anything: what would come of them, and what is left to decide."""

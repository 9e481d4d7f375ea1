"""Access control: who sends a request, what they may do, how much of it, and the record of what they did."""

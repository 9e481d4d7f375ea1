"""What a training step costs, before any placement: time and memory of every part, vectorised over candidates."""

"""Model architectures: given by numbers, by Hugging Face configurations or by name, and their FLOPs."""

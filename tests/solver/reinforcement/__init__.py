"""Joint plans of reinforcement learning."""

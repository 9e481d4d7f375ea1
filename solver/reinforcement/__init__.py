"""Joint plans of reinforcement learning: a trainer and a rollout engine on one cluster."""

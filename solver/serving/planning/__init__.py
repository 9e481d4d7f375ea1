"""The choice of replicas and their GPUs (docs/serving.md, choosing)."""

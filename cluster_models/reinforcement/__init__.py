"""Reinforcement learning: steps in which an engine generates responses and a trainer learns from them."""

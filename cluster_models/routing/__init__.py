"""Routing of tokens to experts, as it was counted."""

"""Experts for users: what routing statistics say, and where experts should lie; nothing here stores anything."""

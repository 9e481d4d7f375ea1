"""HTTP interfaces."""

"""Second readers of exported files: each finds the figures of a launch in what was rendered, or refuses."""

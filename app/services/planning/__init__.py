"""Plans and predictions of training and serving."""

"""Formats of files, in folders by the tool or vendor that prints them."""

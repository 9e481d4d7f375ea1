"""The script that measures a GPU node, and how it is handed out."""

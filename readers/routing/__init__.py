"""Routing statistics as engines and tools print them, read into ``RoutedWorkload`` values."""

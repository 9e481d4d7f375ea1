"""Commands that plan, predict, compare and export."""

"""Upper bounds of GPU allocation by linear programming."""

"""Comparisons of policies in the browser: what `evaluate` has written, of one folder or several."""

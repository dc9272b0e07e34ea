"""openb traces: node and pod lists as CSV."""

"""What only users of three earlier projects need, found by the product through its own entry points."""

"""How work grows with the number of workers."""

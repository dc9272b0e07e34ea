"""Studies of learning in environments."""

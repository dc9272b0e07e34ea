"""Who decides: the policies and the registry that finds them by name."""

"""Hard constraints: which nodes a pod may run on, and why not on others."""

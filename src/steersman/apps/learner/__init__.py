"""Learning on a live cluster: passive Q-learning from a scheduler's decisions, and a one-time fit of a policy."""

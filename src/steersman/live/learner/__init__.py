"""Learning on a live cluster: by an agent that decides, by one that observes other schedulers, and a one-time fit."""

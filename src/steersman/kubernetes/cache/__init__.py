"""State of a live cluster, kept up to date by watches."""

"""Published placement heuristics and the score table that runs them."""

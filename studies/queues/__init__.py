"""Studies of who goes next among pods that wait."""

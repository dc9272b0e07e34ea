"""`steersman/Queue-v0`: an agent chooses who goes next among pods that wait."""

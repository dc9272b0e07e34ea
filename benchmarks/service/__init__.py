"""Speed of the score service, also beside hostile clients."""

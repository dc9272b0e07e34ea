"""Applications: what runs for long or talks to a live cluster."""

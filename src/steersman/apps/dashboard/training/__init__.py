"""Training runs in the browser: their curves while they learn, and requests to them."""

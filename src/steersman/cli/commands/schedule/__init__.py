"""`steersman schedule`: the live scheduler, and what runs beside it."""

"""Who goes next: orders of waiting pods, estimates of run times, and reservations for pods that others overtake."""

"""What happens: arrivals, placements and departures on a cluster state, and what they amount to."""

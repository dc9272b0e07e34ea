"""What in a cluster works with steersman, what does not, and what to do about it."""

"""Speed of schedulers on live clusters."""

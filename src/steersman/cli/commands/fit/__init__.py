"""Commands that fit what schedules to a cluster and its pods."""

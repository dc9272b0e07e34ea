"""How a placement keeps the limits of a pod's latency; `core/src/telemetry_reward.rs` rewards it."""

WITHIN_SOFT, WITHIN_HARD, BEYOND_ANY, BEYOND_AVOIDABLE = range(4)
"""Within the soft limit; within the hard one; beyond it, as on every node with free capacity; beyond it although such a
node could have met it."""

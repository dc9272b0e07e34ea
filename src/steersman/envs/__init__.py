"""Environments for Gymnasium; importing `steersman` registers them.

`gymnasium.make("steersman/Inflation-v0")`, `steersman/Timed-v0`, `steersman/Deployments-v0`, `steersman/Latency-v0`;
`gymnasium.make_vec` gives their vector form, see `vector.SteersmanVectorEnv`. In `steersman/Queue-v0`, which has no
vector form of its own, an agent chooses who goes next.
"""

from __future__ import annotations

from gymnasium.envs.registration import register

_ENVIRONMENTS = {
    "steersman/Inflation-v0": "steersman.envs.workload:Inflation",
    "steersman/Timed-v0": "steersman.envs.workload:Timed",
    "steersman/Deployments-v0": "steersman.envs.deployments:Deployments",
    "steersman/Latency-v0": "steersman.envs.latency:Latency",
}

register("steersman/Queue-v0", entry_point="steersman.envs.queue:QueueEnv")
for _name, _class in _ENVIRONMENTS.items():
    register(_name, entry_point=f"{_class}Env", vector_entry_point=f"{_class}VectorEnv")

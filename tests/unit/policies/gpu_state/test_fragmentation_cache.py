"""The mark of a profile, by which fragmentation that is kept by a hash of the state is told apart."""

from __future__ import annotations

from dataclasses import replace

from steersman.policies.gpu_state.fragmentation_cache import profile_key
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import SMALL, embedded
from steersman.workloads.profile import profile_arrays


def test_profile_marks_are_distinct():
    one, other = (
        Simulator(each).profile_arrays(None)
        for each in (embedded(SMALL), replace(embedded(SMALL), pods=embedded(SMALL).pods[::2]))
    )
    assert profile_key(one).tolist() == profile_key(one._replace(cpu=one.cpu.copy())).tolist()
    assert profile_key(one)[0] != profile_key(other)[0]
    assert profile_key(one)[1] == one.cpu.max()
    assert profile_key(profile_arrays((), ()))[1] == 0

"""Kernels come from a cache that cannot be stale, in a folder of the user's choice."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import NumbaError

from steersman import compiled


def test_every_file_with_a_kernel_counts_for_the_cache():
    package = Path(compiled.__file__).parent
    with_kernels = {
        path
        for path in package.rglob("*.py")
        if re.search(r"^@(kernel|inner|outlined|pasted)$", path.read_text(), re.M)
    }
    assert len(with_kernels) > 5
    assert with_kernels <= set(compiled.kernel_sources())
    assert Path(compiled.__file__) in compiled.kernel_sources()


def test_machine_code_lies_in_the_folder_named_by_the_environment_and_old_code_goes(tmp_path):
    for age in range(5):
        (tmp_path / "kernels" / f"old{age}").mkdir(parents=True)
        os.utime(tmp_path / "kernels" / f"old{age}", (age, age))
    code = (
        "import numpy as np; from steersman.cluster.state import ClusterState; from steersman.cluster.model import *;"
        "s = ClusterState([Node('a', 10, 10)]); print(s.mask(s.class_id(PodClass(Requests(1, 1)))))"
    )
    environment = {**os.environ, "STEERSMAN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "[ True]\n"
    assert list(tmp_path.glob("kernels/*/*/*.nbc"))
    assert sorted(path.name for path in tmp_path.glob("kernels/old*")) == ["old3", "old4"]


def test_a_kernel_that_allocates_does_not_compile():
    def allocates(n):
        return np.zeros(n).sum()

    with pytest.raises(NumbaError):
        compiled.kernel(allocates)(3)


def test_constants_and_other_numbers_share_one_compilation():
    @compiled.inner
    def twice(x):
        return 2 * x

    @compiled.kernel
    def both(x):
        return twice(3) + twice(x)

    assert both(4) == 14
    assert len(twice.overloads) == 1


def test_kernels_need_no_scipy_and_a_users_function_has_blas_as_ever() -> None:
    program = (
        "import sys; import numba; import numpy as np; from steersman import compiled\n"
        "x = np.arange(4.0).reshape(2, 2)\n"
        "assert numba.njit(lambda a: a.sum())(x) == 6\n"
        "assert 'scipy.linalg' not in sys.modules\n"
        "dot = numba.njit(lambda a, b: np.dot(a, b)); assert (dot(x, x) == x @ x).all()\n"
        "line = numba.njit(lambda a: np.convolve(a, a)); assert (line(x[0]) == np.convolve(x[0], x[0])).all()\n"
        "assert 'scipy.linalg' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

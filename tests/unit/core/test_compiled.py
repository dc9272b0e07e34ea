"""Kernels come from a cache that cannot be stale, in a folder of the user's choice."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import NumbaError

from steersman.core import compiled

PACKAGE = Path(compiled.__file__).parents[1]
STATE = (
    "import numpy as np; from steersman.cluster.state import ClusterState; from steersman.cluster.model import *;"
    "from steersman.cluster import arrays;"
    "s = ClusterState([Node('a', 10, 10)]); print(s.mask(s.class_id(PodClass(Requests(1, 1)))));"
    "print(sum(arrays.fit_mask.stats.cache_hits.values()), sum(arrays.fit_mask.stats.cache_misses.values()))"
)


def files_with_kernels() -> list[Path]:
    return [
        file
        for file in PACKAGE.rglob("*.py")
        if re.search(r"^@(kernel|inner|outlined|pasted)$", file.read_text(), re.M)
    ]


def run(code: str, cache: Path, package: Path = PACKAGE) -> list[str]:
    """What a program prints."""
    environment = {**os.environ, "STEERSMAN_CACHE_DIR": str(cache), "PYTHONPATH": str(package.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_machine_code_depends_on_every_file_that_a_kernel_takes_anything_from():
    files = files_with_kernels()
    assert len(files) > 20
    for file in files:
        module = importlib.import_module(".".join(("steersman", *file.relative_to(PACKAGE).with_suffix("").parts)))
        taken = {getattr(each, "__module__", "") for each in vars(module).values()}
        used = {sys.modules[name].__file__ for name in taken if isinstance(name, str) and name.startswith("steersman.")}
        assert {Path(each) for each in used if each} <= compiled.source_files(file)
        assert compiled.source_files(file) >= {file, Path(compiled.__file__)}


def test_a_change_anywhere_below_a_kernel_is_other_machine_code_and_one_beside_it_is_not(tmp_path, monkeypatch):
    copy = shutil.copytree(PACKAGE, tmp_path / "steersman", ignore=shutil.ignore_patterns("__pycache__", "data"))
    monkeypatch.setattr(compiled, "PACKAGE", copy)

    def folder(name: str) -> str:
        for each in (compiled.imported_files, compiled.cache_folder, compiled._content_digest):
            each.cache_clear()
        return compiled.cache_folder(copy / name).name

    engine, arrays = folder("simulation/engine.py"), folder("cluster/arrays.py")
    table = copy / "policies" / "heuristics" / "score_table.py"
    table.write_text(table.read_text() + "\n# another\n")
    assert folder("simulation/engine.py") != engine
    assert folder("cluster/arrays.py") == arrays


def test_machine_code_is_found_again_from_another_place_and_after_a_checkout(tmp_path):
    for age in range(5):
        (tmp_path / "kernels" / f"old{age}").mkdir(parents=True)
        os.utime(tmp_path / "kernels" / f"old{age}", (age, age))
    kept = f"from steersman.core import compiled; compiled.KEPT_FOLDERS = 2; compiled._set_up_cache();{STATE}"
    assert run(kept, tmp_path) == ["[ True]", "0 1"]
    assert sorted(path.name for path in tmp_path.glob("kernels/old*")) == ["old3", "old4"]
    copy = shutil.copytree(
        PACKAGE,
        tmp_path / "elsewhere" / "steersman",
        ignore=shutil.ignore_patterns("__pycache__", "data"),
        copy_function=shutil.copyfile,
    )
    assert run(STATE, tmp_path, copy) == ["[ True]", "1 0"]
    below = copy / "core" / "compiled.py"
    below.write_text(below.read_text() + "\n# another\n")
    assert run(STATE, tmp_path, copy) == ["[ True]", "0 1"]


def test_a_users_own_function_is_kept_by_numbas_own_rules(tmp_path):
    (tmp_path / "mine.py").write_text("import numba\n@numba.njit(cache=True)\ndef twice(x): return 2 * x\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import steersman.core.compiled, mine; print(mine.twice(2))"
    )
    assert run(code, tmp_path / "cache") == ["4"]
    assert list(tmp_path.glob("__pycache__/mine.twice*.nbi"))


def test_a_kernel_that_allocates_does_not_compile():
    def allocates(n):
        return np.zeros(n).sum()

    with pytest.raises(NumbaError):
        compiled.kernel(allocates)(3)


def test_constants_and_other_numbers_share_one_compilation():
    @compiled.inlined_kernel
    def twice(x):
        return 2 * x

    @compiled.kernel
    def both(x):
        return twice(3) + twice(x)

    assert both(4) == 14
    assert len(twice.overloads) == 1


def test_kernels_need_no_scipy_and_a_users_function_has_blas_as_ever() -> None:
    program = (
        "import sys; import numba; import numpy as np; from steersman.core import compiled\n"
        "x = np.arange(4.0).reshape(2, 2)\n"
        "assert numba.njit(lambda a: a.sum())(x) == 6\n"
        "assert 'scipy.linalg' not in sys.modules\n"
        "dot = numba.njit(lambda a, b: np.dot(a, b)); assert (dot(x, x) == x @ x).all()\n"
        "line = numba.njit(lambda a: np.convolve(a, a)); assert (line(x[0]) == np.convolve(x[0], x[0])).all()\n"
        "assert 'scipy.linalg' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

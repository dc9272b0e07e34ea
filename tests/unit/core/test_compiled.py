"""Kernels come from a cache that cannot be stale, in a folder of the user's choice."""

import importlib
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numba
import numpy as np
import pytest
from numba import types
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from tests.bounds.checking import has_kernels

from steersman.core import compiled

PACKAGE = Path(compiled.__file__).parents[1]
FACTOR = 2
TABLE = {1: 2}
STATE = (
    "import numpy as np; from steersman.cluster.state import ClusterState; from steersman.cluster.model import *;"
    "from steersman.cluster import arrays;"
    "s = ClusterState([Node('a', 10, 10)]); print(s.mask(s.class_id(PodClass(Requests(1, 1)))));"
    "print(sum(arrays.fit_mask.stats.cache_hits.values()), sum(arrays.fit_mask.stats.cache_misses.values()))"
)


def run(code: str, cache: Path, package: Path = PACKAGE, **variables: str) -> list[str]:
    """What a program prints."""
    own = {"STEERSMAN_CACHE_DIR": str(cache), "PYTHONPATH": str(package.parent)}
    environment = {**os.environ, **own, **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


@compiled.inlined_kernel
def doubled(x):
    return x * FACTOR


@compiled.kernel
def plus_one(x):
    return doubled(x) + 1


def digest_of(monkeypatch, definition, **changes):
    """The digest after some attributes of the function that a kernel was made from have changed."""
    for cached in (compiled.kernel_digest, compiled._uses, compiled._content):
        cached.cache_clear()
    with monkeypatch.context() as patch:
        for name, value in changes.items():
            patch.setattr(definition.py_func, name, value)
        return compiled.kernel_digest(plus_one)


def code_of(source: str):
    """The code of the first function in a source text."""
    module = compile(source, "elsewhere.py", "exec")
    return next(each for each in module.co_consts if hasattr(each, "co_code"))


def test_key_changes_with_code_constants_and_options_of_all_kernels_it_calls(monkeypatch):
    before = digest_of(monkeypatch, doubled)
    assert digest_of(monkeypatch, doubled, __code__=code_of("def doubled(x):\n    return FACTOR * x")) != before
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert digest_of(monkeypatch, doubled) != before
    monkeypatch.setitem(globals(), "FACTOR", 2)
    assert digest_of(monkeypatch, doubled) == before
    monkeypatch.setitem(doubled.targetoptions, "error_model", "python")
    assert digest_of(monkeypatch, doubled) != before


def test_comments_lines_files_and_docstrings_are_not_in_the_key(monkeypatch):
    before = digest_of(monkeypatch, doubled)
    moved = code_of("\n\n# a comment\ndef doubled(x):\n\n    # another\n    return x * FACTOR")
    assert digest_of(monkeypatch, doubled, __code__=moved) == before
    texts = []
    for text in ("Double.", "Multiply by two."):
        code = code_of(f"def doubled(x):\n    {text!r}\n    return x * FACTOR")
        texts.append(digest_of(monkeypatch, doubled, __code__=code, __doc__=text))
    assert texts[0] == texts[1]


def test_fields_of_named_tuples_are_in_the_key_of_arguments():
    kinds = (numba.int64, numba.int64)
    keys = [compiled._type_key(types.NamedTuple(kinds, namedtuple("Pair", fields))) for fields in ("a b", "b a", "a b")]
    assert keys[0] == keys[2] != keys[1]
    moved = namedtuple("Pair", "a b", module="elsewhere")
    assert compiled._type_key(types.NamedTuple(kinds, moved)) != keys[0]


def test_a_global_that_cannot_be_hashed_is_named():
    def lookup(x):
        return TABLE[x]

    with pytest.raises(TypeError, match=r"a kernel uses \{1: 2\}"):
        compiled.kernel_digest(compiled.kernel(lookup))


def source_files(file: Path) -> set[Path]:
    """The files of the functions and named tuples that are in the keys of a file's kernels."""
    module = importlib.import_module(".".join((PACKAGE.name, *file.relative_to(PACKAGE).with_suffix("").parts)))
    kernels = (each for each in vars(module).values() if isinstance(each, Dispatcher))
    names = {
        each.__module__ for own in kernels if own.__module__ == module.__name__ for each in compiled._reachable(own)
    }
    return {Path(sys.modules[name].__file__) for name in names}


def test_cache_keys_cover_only_kernels():
    files = [file for file in PACKAGE.rglob("*.py") if has_kernels(file)]
    assert files
    keys = {file: source_files(file) for file in files}
    assert all(file in sources for file, sources in keys.items())
    without_kernels = set().union(*keys.values()) - set(files)
    assert not without_kernels


def copied(folder: Path) -> Path:
    """A copy of the package, without its data."""
    ignored = shutil.ignore_patterns("__pycache__", "data")
    return shutil.copytree(PACKAGE, folder / "steersman", ignore=ignored, copy_function=shutil.copyfile)


def test_packaged_code_for_any_processor_is_used_and_not_copied(tmp_path):
    name, features = compiled.PORTABLE
    portable = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    assert run(STATE, tmp_path / "build", **portable) == ["[ True]", "0 1"]
    package = copied(tmp_path / "installed")
    shutil.copytree(tmp_path / "build" / "kernels", package / "data" / "kernels")
    assert run(STATE, tmp_path / "user", package) == ["[ True]", "1 0"]
    assert not (tmp_path / "user").exists()
    for file in (package / "data" / "kernels").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert run(STATE, tmp_path / "user", package) == ["[ True]", "0 1"]


def test_cached_code_survives_moves_and_comments(tmp_path):
    folder = tmp_path / "kernels"
    folder.mkdir()
    for age in range(5):
        (folder / f"old{age}").touch()
        os.utime(folder / f"old{age}", (age, age))
    kept = f"from steersman.core import compiled; compiled.KEPT_FILES = 4; {STATE}"
    assert run(kept, tmp_path) == ["[ True]", "0 1"]
    assert sorted(path.name for path in folder.glob("old*")) == ["old3", "old4"]
    copy = copied(tmp_path / "elsewhere")
    assert run(STATE, tmp_path, copy) == ["[ True]", "1 0"]
    for name in ("cluster/model.py", "cluster/arrays.py", "core/compiled.py"):
        file = copy / name
        file.write_text(file.read_text().replace("from __future__", "# a comment\nfrom __future__", 1))
    assert run(STATE, tmp_path, copy) == ["[ True]", "1 0"]
    arrays = copy / "cluster" / "arrays.py"
    text = arrays.read_text()
    assert "out[n] = fits(nodes, classes, c, n)" in text
    arrays.write_text(text.replace("out[n] = fits(nodes, classes, c, n)", "out[n] = not fits(nodes, classes, c, n)"))
    assert run(STATE, tmp_path, copy) == ["[False]", "0 1"]


def test_two_processes_save_equal_files(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    saved = []
    for name in ("first", "second"):
        run(STATE, tmp_path / name)
        saved.append({file.name: file.read_bytes() for file in (tmp_path / name / "kernels").iterdir()})
    assert saved[0]
    assert saved[0] == saved[1]


def test_damaged_cached_code_is_recompiled(tmp_path):
    assert run(STATE, tmp_path) == ["[ True]", "0 1"]
    (file,) = tmp_path.glob("kernels/fit_mask-*")
    content = file.read_bytes()
    for damaged in (content[:-1], content[:-1] + bytes([content[-1] ^ 1])):
        file.write_bytes(damaged)
        assert run(STATE, tmp_path) == ["[ True]", "0 1"], damaged[:20]


def test_unwritable_folder_costs_time_only(tmp_path):
    (tmp_path / "file").write_text("")
    assert run(STATE, tmp_path / "file") == ["[ True]", "0 1"]


def test_user_function_uses_numba_caching(tmp_path):
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


def test_constants_and_other_numbers_share_one_compilation(tmp_path, monkeypatch):
    monkeypatch.setenv("STEERSMAN_CACHE_DIR", str(tmp_path))  # nothing is found in the cache

    @compiled.inlined_kernel
    def twice(x):
        return 2 * x

    @compiled.kernel
    def both(x):
        return twice(3) + twice(x)

    assert both(4) == 14
    assert len(twice.overloads) == 1


def test_kernels_need_no_scipy_and_user_functions_keep_blas() -> None:
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

"""The last test of the folder: no kernel of the package was left out by the others."""

from tests.bounds.checking import EXECUTED, KERNELS, import_all


def test_every_kernel_ran():
    import_all()
    ours = {name for name in KERNELS if not name.startswith("tests.")}
    assert len(ours) > 250
    missing = sorted(ours - EXECUTED)
    assert not missing, f"run all of tests/bounds; these kernels were not among it: {', '.join(missing)}"

#!/bin/sh
# Make an installation small and quick to start, and equal in every build: FOLDER has venv/.
set -eu
folder=$1
python=$folder/venv/bin/python
packages=$(echo "$folder"/venv/lib/python3*/site-packages)
rm -rf "$packages"/pip "$packages"/pip-* "$packages"/setuptools "$packages"/setuptools-* "$packages"/pkg_resources \
    "$packages"/_distutils_hack "$packages"/distutils-precedence.pth "$folder"/venv/bin/pip*
# Tests of libraries, which nothing imports.
find "$packages/numba" "$packages/numpy" "$packages/llvmlite" -type d -name tests -prune -exec rm -rf {} +
# Modules that are not checked against their sources: the layers' dates are not those of the sources. torch brings one
# in the syntax of Python 3.12, and says so by its name.
PYTHONHASHSEED=0 "$python" -m compileall -q -j 1 --invalidation-mode unchecked-hash -x '/py31[2-9]_[^/]*$' "$packages"
PYTHONHASHSEED=0 OMP_NUM_THREADS=1 "$python" -m release.kernels "$packages/steersman/data/kernels"
chmod -R a+rX "$folder"

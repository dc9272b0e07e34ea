#!/bin/sh
# Make an installation small and quick to start, and equal in every build: FOLDER has venv/.
set -eu
folder=$1
python=$folder/venv/bin/python
packages=$(echo "$folder"/venv/lib/python3*/site-packages)
rm -rf "$packages"/pip "$packages"/pip-* "$packages"/setuptools "$packages"/setuptools-* "$packages"/pkg_resources \
    "$packages"/_distutils_hack "$packages"/distutils-precedence.pth "$folder"/venv/bin/pip*
# What runs the portable core.
if [ -f "$packages/steersman/core/libsteersman_core.so" ]; then
    rm -rf "$packages"/wasmtime "$packages"/wasmtime-*
fi
# Tests of libraries, which nothing imports.
find "$packages/numpy" -type d -name tests -prune -exec rm -rf {} +
compile() {
    PYTHONHASHSEED=0 "$python" -m compileall -q -j 1 --invalidation-mode unchecked-hash "$@"
}
# torch compiles with headers and reads sources; with it an image has several GB anyway.
if [ ! -d "$packages/torch" ]; then
    # NumPy's builders of extensions and its tests of instructions.
    rm -rf "$packages"/numpy/distutils "$packages"/numpy/f2py "$packages"/numpy/_core/_simd.*
    # What C compilers and type checkers read.
    find "$packages" -type f \( -name '*.py[ixd]' -o -name '*.pxd' -o -name '*.[ach]' -o -name '*.hpp' \) -delete
    "$python" -m release.symbols "$packages"
    # Libraries as compiled modules alone, half the size: tracebacks name files and lines, and do not show them.
    for each in "$packages"/*; do
        case $each in */steersman) continue ;; esac
        compile -b "$each"
        find "$each" -name '*.py' -delete
    done
fi
# Modules that are not checked against their sources: the layers' dates are not those of the sources. torch brings one
# in the syntax of Python 3.12, and says so by its name.
compile -x '/py31[2-9]_[^/]*$' "$packages"
chmod -R a+rX "$folder"

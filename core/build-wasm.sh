#!/bin/sh
# Compile the core to WebAssembly: FILE. The same sources and the same rustc give the same bytes.
set -eu
file=$(realpath "$1")
cd "$(dirname "$0")"
target=wasm32-unknown-unknown
# The toolchain of PATH, else Debian's: with the compiled library of this target, or with its sources.
for folder in "" /usr/bin/; do
    RUSTC=$(command -v "${folder}rustc") && cargo=$(command -v "${folder}cargo") || continue
    libraries=$("$RUSTC" --print sysroot)/lib/rustlib
    if [ -d "$libraries/$target" ]; then library= && break; fi
    if [ -d "$libraries/src/rust/library" ]; then library=-Zbuild-std=core,alloc,std,panic_abort && break; fi
done
if [ -z "${library+set}" ]; then
    echo "the portable core needs Rust's library for WebAssembly: rustup target add $target," \
        "or on Debian apt-get install rustc-web cargo-web rust-web-src lld" >&2
    exit 1
fi
# Panics name files: those of crates and of Rust's library without the folders of this machine.
"$cargo" fetch --quiet
RUSTFLAGS="--remap-path-prefix=$libraries/src/rust=rust --remap-path-prefix=$(realpath "$libraries/src/rust")=rust"
for crates in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
    RUSTFLAGS="$RUSTFLAGS --remap-path-prefix=$crates=crates"
done
export RUSTC RUSTFLAGS RUSTC_BOOTSTRAP=1
"$cargo" build --quiet --profile wasm --target $target $library
mkdir -p "$(dirname "$file")"
cp "${CARGO_TARGET_DIR:-target}/$target/wasm/steersman_core.wasm" "$file"

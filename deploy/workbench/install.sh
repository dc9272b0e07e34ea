#!/bin/sh
# Install what the workbench needs in a Debian without anything, as root, from the files of a checkout.
set -eu
cd "$(dirname "$0")/../.."
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -y -q --no-install-recommends bash ca-certificates make python3-venv
make .venv/workbench
rm -rf /var/lib/apt/lists/* "${HOME:-/root}/.cache"

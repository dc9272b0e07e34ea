#!/bin/sh
# Start the workbench on the cluster of deploy/compose as soon as its API server answers; options are the command's.
set -eu
cd "$(dirname "$0")/../.."
kubeconfig=deploy/compose/kubeconfig.yaml
server=$(sed -n 's/^ *server: //p' "$kubeconfig")
until .venv/bin/python -c "from urllib.request import urlopen; urlopen('$server/readyz', timeout=5)" 2>/dev/null; do
    sleep 1
done
exec .venv/bin/steersman workbench --kubeconfig "$kubeconfig" "$@"

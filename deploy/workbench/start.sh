#!/bin/sh
# Start the workbench on the cluster of deploy/compose as soon as its API server answers; options are the command's.
set -eu
cd "$(dirname "$0")/../.."
kubeconfig=$PWD/deploy/compose/kubeconfig.yaml
server=$(sed -n 's/^ *server: //p' "$kubeconfig")
until python -c "from urllib.request import urlopen; urlopen('$server/readyz', timeout=5)" 2>/dev/null; do
    sleep 1
done
cd docs/tutorials
exec steersman workbench --kubeconfig "$kubeconfig" "$@"

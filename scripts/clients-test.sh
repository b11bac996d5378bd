#!/usr/bin/env bash
# Runs the Python and the JavaScript client of Kubernetes, at pinned versions, against a server.
#
#   scripts/clients-test.sh KEELSON [python|javascript]...
set -euo pipefail
keelson=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- python javascript
cd "$(dirname "$0")/../e2e/clients"
tools=$(realpath ../..)/.tools/clients
folder=$(mktemp -d)
# What the pinned versions need is kept for the next time.
mkdir -p "$tools"

"$keelson" --data-dir="$folder/data" --bind-address=127.0.0.1 --secure-port=0 --controllers='*' >"$folder/log" 2>&1 &
server=$!
trap 'kill $server; wait $server || true; rm -rf "$folder"' EXIT
# The kubeconfig has the port, and is written when the server is about to serve.
export KUBECONFIG=$folder/data/admin.kubeconfig
ready() {
  url=$(sed -n 's/^ *server: //p' "$KUBECONFIG" 2>/dev/null) && [ -n "$url" ] && curl --silent --insecure --fail --output /dev/null "$url/readyz"
}
for _ in $(seq 300); do
  if ready || ! kill -0 $server 2>/dev/null; then break; fi
  sleep 0.1
done
ready || { cat "$folder/log" >&2; exit 1; }

for client in "$@"; do
  case $client in
    python)
      [ -d "$tools/python" ] || python3 -m venv "$tools/python"
      "$tools/python/bin/pip" install --quiet --disable-pip-version-check --requirement python/requirements.txt
      "$tools/python/bin/python" python/test_client.py
      ;;
    javascript)
      mkdir -p "$tools/javascript"
      cp javascript/* "$tools/javascript"
      (cd "$tools/javascript" && npm ci --silent --no-audit --no-fund && npm test)
      ;;
    *) echo "there is no client $client" >&2; exit 2 ;;
  esac
done

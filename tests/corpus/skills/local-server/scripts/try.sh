#!/bin/bash
# Serves this directory and fetches from it.
set -euo pipefail
python3 -m http.server --bind 127.0.0.1 8123 2> server.log &
server=$!
trap 'kill $server' EXIT
for _ in $(seq 100); do
  curl -fsS -o fetched.md http://127.0.0.1:8123/SKILL.md 2> last.txt && break
  kill -0 $server 2> /dev/null || { cat server.log >&2; exit 1; }
  sleep 0.05
done
cmp SKILL.md fetched.md
echo fetched over HTTP

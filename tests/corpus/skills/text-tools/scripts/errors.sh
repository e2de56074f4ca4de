#!/usr/bin/env bash
# Counts the errors of each service in a log of JSON lines.
set -euo pipefail
rg '"level":"error"' "$1" | jq -r .service | sort | uniq -c | sort -rn | awk '{ print $2 ": " $1 }'

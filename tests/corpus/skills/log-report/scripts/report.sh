#!/bin/bash
# Prints requests by status, and the paths that were asked for most.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk '{ print $9 }' "$1" | sort | uniq -c > "$work/status"
awk '{ print $7 }' "$1" | sed 's/?.*//' | sort | uniq -c | sort -rn | head -n 3 > "$work/paths"
cat "$work/status" "$work/paths"

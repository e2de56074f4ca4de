#!/bin/bash
# Zips a directory to a document.
set -euo pipefail
target=$(realpath "$2")
cd "$1"
rm -f "$target"
zip -q -X "$target" '[Content_Types].xml'
zip -q -X -r "$target" . -x '[Content_Types].xml'

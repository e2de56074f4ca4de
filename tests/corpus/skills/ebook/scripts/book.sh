#!/bin/bash
# Makes an EPUB with a drawn cover.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
book=$1
shift
python3 "$here/cover.py" cover.png
pandoc --metadata title="A book" --metadata lang=en --epub-cover-image cover.png --toc -o "$book" "$@"

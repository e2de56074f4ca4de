#!/bin/bash
# Unpacks a document into a new directory.
set -euo pipefail
rm -rf "$2"
mkdir -p "$2"
unzip -q "$1" -d "$2"
find "$2" -type f | sort

#!/bin/bash
# Packs files in every format, unpacks them again and compares.
set -euo pipefail
rm -rf packed && mkdir packed
for ending in tar tar.gz tar.xz tar.bz2 zip; do
  target=packed/all.$ending
  mkdir "packed/$ending"
  case $ending in
    zip) zip -q -r "$target" "$@" && unzip -q "$target" -d "packed/$ending" ;;
    *) tar -caf "$target" "$@" && tar -xf "$target" -C "packed/$ending" ;;
  esac
  for file in "$@"; do cmp "$file" "packed/$ending/$file"; done
  echo "$ending holds"
done
zstd -q -f "$1" -o packed/one.zst && zstd -q -d -c packed/one.zst | cmp - "$1" && echo zstd holds

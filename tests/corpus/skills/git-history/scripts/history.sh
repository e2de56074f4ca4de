#!/bin/bash
# Clones a repository and prints its history.
set -euo pipefail
export GIT_SSL_CAINFO="$PWD/$2" GIT_TERMINAL_PROMPT=0
rm -rf clone
git clone --quiet "$1" clone
git -C clone log --format='%an: %s'
cd clone
git switch --quiet --create change
echo third >> README.md
git -c user.name=skill -c user.email=skill@example.org commit --quiet --all --message Third
git diff --stat main

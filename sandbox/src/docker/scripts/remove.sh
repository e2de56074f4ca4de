# $1 is `one` or `all`.
resolve "$P" keep
[ "$R" != "$W" ] || exit 79
if [ ! -e "$R" ] && [ ! -L "$R" ]; then exit 71; fi
# Not between a swap's last look at a file and its rename.
if [ ! -d "$R" ] || [ -L "$R" ]; then lock "${R%/*}" || :; fi
if [ "$1" = all ]; then
  rm -rf -- "$R" || exit 72
elif [ -d "$R" ] && [ ! -L "$R" ]; then
  rmdir -- "$R" 2>/dev/null && exit 0
  [ -z "$(ls -A -- "$R")" ] || exit 75
  exit 72
else
  rm -f -- "$R" || exit 72
fi

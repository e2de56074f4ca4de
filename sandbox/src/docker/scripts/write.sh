# $1 is `create`, `replace` or `swap`, $2 the permission bits or `-`, $3 the mark that ends a whole stream on standard input,
# $4 the version to swap. Tells the version of what was written. Of a swap, 71 means what 80 does: the file is gone.
how=$1 bits=$2 mark=$3 expected=$4
if [ "$how" = create ]; then follow=keep taken=76; else follow=follow taken=73; fi
[ "$P" != "$W" ] || exit "$taken"
resolve "$P" "$follow"

# Whether what is there may be swapped.
swappable() {
  [ -f "$R" ] || exit 80
  facts "$R" || exit 80
  [ "${F##* }" != - ] || exit 81
  [ "${F##* }" = "$expected" ] || exit 80
}

old=644
if [ -e "$R" ] || [ -L "$R" ]; then
  [ "$how" != create ] || exit 76
  [ ! -d "$R" ] || exit 73
  [ -f "$R" ] || exit 72
  old=$(stat -c %a -- "$R") || exit 72
  old=00$old
  old=${old#"${old%???}"}
fi
[ "$bits" != - ] || bits=$old
[ -d "${R%/*}" ] || exit 71
# Once more before the rename; this look spares the sending of what would be refused then.
[ "$how" != swap ] || swappable
new=$(mktemp "${R%/*}/.filesecbox.XXXXXX") || exit 72
trap 'rm -f -- "$new"' EXIT
# For its version: neither a command nor another script changes what this leads to.
exec 8<"$new" || exit 78
cat >"$new" || exit 78
size=$(($(stat -c %s -- "$new") - ${#mark}))
[ "$size" -ge 0 ] || exit 70
[ "$(tail -c "${#mark}" -- "$new" | tr -d '\0')" = "$mark" ] || exit 70
truncate -s "$size" -- "$new" || exit 78
chmod -- "$bits" "$new" || exit 72
if [ "$how" = create ]; then
  ln -- "$new" "$R" || exit 76
  rm -f -- "$new" || exit 72
else
  lock "${R%/*}" || [ "$how" != swap ] || exit 82
  [ ! -d "$R" ] || exit 73
  [ "$how" != swap ] || swappable
  mv -f -- "$new" "$R" || exit 72
fi
facts /proc/self/fd/8 || exit 70
echo "${F##* }"

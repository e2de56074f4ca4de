# $1 is `create` or `replace`, $2 the permission bits or `-`, $3 the mark that ends a whole stream on standard input.
how=$1 bits=$2 mark=$3
if [ "$how" = create ]; then follow=keep taken=76; else follow=follow taken=73; fi
[ "$P" != "$W" ] || exit "$taken"
resolve "$P" "$follow"
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
new=$(mktemp "${R%/*}/.filesecbox.XXXXXX") || exit 72
trap 'rm -f -- "$new"' EXIT
cat >"$new" || exit 78
size=$(($(stat -c %s -- "$new") - ${#mark}))
[ "$size" -ge 0 ] || exit 70
[ "$(tail -c "${#mark}" -- "$new" | tr -d '\0')" = "$mark" ] || exit 70
truncate -s "$size" -- "$new" || exit 78
chmod -- "$bits" "$new" || exit 72
if [ "$how" = create ]; then
  ln -- "$new" "$R" || exit 76
else
  [ ! -d "$R" ] || exit 73
  mv -f -- "$new" "$R" || exit 72
fi

# $1 is the most entries. One line for each; one more than the most when there are more.
resolve "$P" follow
[ -e "$R" ] || exit 71
[ -d "$R" ] || exit 74
[ -r "$R" ] && [ -x "$R" ] || exit 72
echo "$R"
find "$R" -mindepth 1 -maxdepth 1 -exec stat -c '%f %s %n' -- {} + | head -n "$(($1 + 1))"

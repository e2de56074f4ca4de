resolve "$P" follow
[ -e "$R" ] || exit 71
stat -c '%f %s %Y' -- "$R" || exit 72

resolve "$P" follow
[ -e "$R" ] || exit 71
facts "$R" || exit 72
echo "$F"

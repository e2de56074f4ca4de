# Runs a program with its arguments: "$@". `+` on standard output says that it begins.
resolve "$P" follow
[ -e "$R" ] || exit 71
[ -d "$R" ] || exit 74
cd -- "$R" || exit 72
command -v "$1" >/dev/null 2>&1 || exit 71
printf +
# What this shell has to say about the end of its children is nobody's output.
exec 3>&2 2>/dev/null
(exec "$@" 2>&3 3>&-)
code=$?
exec 3>&-
kill_run "$FILESECBOX_RUN"
exit "$code"

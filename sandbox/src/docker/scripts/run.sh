# $1 is the group id of the run. Runs a program with its arguments, "$@" after it. `+` on standard output says that it begins.
group_of_run=$1
shift
resolve "$P" follow
[ -e "$R" ] || exit 71
[ -d "$R" ] || exit 74
cd -- "$R" || exit 72
command -v "$1" >/dev/null 2>&1 || exit 71
printf +
# The messages of this shell about the end of its children belong to no command's output.
exec 3>&2 2>/dev/null
(exec "$@" 2>&3 3>&-)
code=$?
exec 3>&-
kill_run "$group_of_run"
exit "$code"

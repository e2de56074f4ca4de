# $1 is the group id of the run, $2 and $3 are lines and columns of its terminal, 0 without one. Runs a program with its arguments,
# "$@" after them. `+` on standard output says that it begins.
group_of_run=$1 rows=$2 cols=$3
shift 3
resolve "$P" follow
[ -e "$R" ] || exit 71
[ -d "$R" ] || exit 74
cd -- "$R" || exit 72
command -v "$1" >/dev/null 2>&1 || exit 71
if [ "$rows" != 0 ]; then
  stty rows "$rows" cols "$cols" 2>/dev/null || :
  # The keys of the terminal are signals for the command: this shell waits for it. The command does not inherit a trap.
  trap : INT QUIT
fi
printf +
# The messages of this shell about the end of its children belong to no command's output.
exec 3>&2 2>/dev/null
(exec "$@" 2>&3 3>&-)
code=$?
exec 3>&-
# What this shell cannot end, the caller ends together with the container: after a signal it looks.
kill_run "$group_of_run" || kill -9 $$
exit "$code"

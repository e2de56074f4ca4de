# Ends every process whose group id is $1, which each run has to itself and no process can change, but this shell. Only
# builtins, because a run may have left no process to spare. Stopped first, so that a process that is found cannot make
# another one while the rest is looked for; what is stopped takes up room, so that in the end none can be made.
set +f
kill_run() {
  for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    moving='' found=''
    for process in /proc/[0-9]*; do
      [ "${process#/proc/}" != $$ ] || continue
      state='' group=''
      while read -r key value rest; do
        case $key in
          State:) state=$value ;;
          Gid:) group=$value && break ;;
        esac
      done 2>/dev/null <"$process/status"
      [ "$group" = "$1" ] && [ "$state" != Z ] || continue
      found="$found ${process#/proc/}"
      [ "$state" = T ] || moving="$moving ${process#/proc/}"
    done
    [ -n "$found" ] || return 0
    [ -n "$moving" ] || break
    kill -STOP $moving 2>/dev/null || :
  done
  kill -9 $found 2>/dev/null || :
}

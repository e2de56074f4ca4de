# Ends every process whose group id is $1, which each run has to itself and no process can change, but this shell. Fails when
# some are left after 5 s: a process that was signalled ends when it gets a processor, for which it may have to wait, among
# others with this shell, which looks all the time. Only builtins, because a run may have left no process to spare. Stopped
# first, so that a process that is found cannot make another one while the rest is looked for; what is stopped takes up room,
# so that in the end none can be made. A process is stopped with its process group, which is of this run alone, because every
# run begins a session: one by one, those that make others are faster than this shell. A look that finds none is the last one
# when no process was made meanwhile: else it may have missed one.
set +f
kill_run() {
  round=0 quiet=0 own='' begin=0 now=0
  seconds begin
  while read -r key value rest; do
    [ "$key" != NSpgid: ] || own=$value
  done 2>/dev/null <"/proc/$$/status"
  while [ "$quiet" -lt 10 ]; do
    round=$((round + 1))
    seconds now
    # Where looks are slow, or there is no clock, some nevertheless.
    [ "$round" -le 20 ] || [ $((now - begin)) -le 5 ] || break
    moving='' found=''
    newest before
    for process in /proc/[0-9]*; do
      [ "${process#/proc/}" != $$ ] || continue
      state='' group='' together=$own
      while read -r key value rest; do
        case $key in
          State:) state=$value ;;
          Gid:) group=$value && { [ "$group" = "$1" ] || break; } ;;
          NSpgid:) together=$value && break ;;
        esac
      done 2>/dev/null <"$process/status"
      [ "$group" = "$1" ] && [ "$state" != Z ] || continue
      found="$found ${process#/proc/}"
      [ "$state" != T ] || continue
      moving=yes
      kill -s STOP "${process#/proc/}" 2>/dev/null || :
      [ "$together" = "$own" ] || [ "$together" -le 1 ] || kill -s STOP -- "-$together" 2>/dev/null || :
    done
    newest after
    if [ -n "$moving" ]; then
      continue
    elif [ -n "$found" ]; then
      kill -9 $found 2>/dev/null || :
    elif [ "$before" = "$after" ]; then
      return 0
    else
      quiet=$((quiet + 1))
    fi
  done
  # Another run makes processes all the time, and none of this one was among them.
  [ "$quiet" -eq 10 ]
}

# seconds NAME: the variable NAME is the time since the host began, in whole seconds (proc(5), uptime).
seconds() {
  { IFS=. read -r "$1" rest; } 2>/dev/null </proc/uptime || eval "$1=\$((begin + 6))"
}

# newest NAME: the variable NAME is the number of the last process that was made in this container (proc(5), loadavg).
newest() {
  { read -r one five fifteen ready "$1"; } 2>/dev/null </proc/loadavg || eval "$1=''"
}

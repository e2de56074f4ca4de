# Kills every process that was started with FILESECBOX_RUN=$1, and those that they start meanwhile.
set +f
kill_run() {
  for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    found=
    for process in /proc/[0-9]*; do
      [ "${process#/proc/}" != $$ ] || continue
      grep -q "FILESECBOX_RUN=$1" "$process/environ" 2>/dev/null || continue
      kill -9 "${process#/proc/}" 2>/dev/null && found=$round
    done
    [ -n "$found" ] || return 0
  done
}

# Sends the signal $2 to every process whose group id is $1, but to the shell of run.sh: its parent is not in the container.
set +f
for process in /proc/[0-9]*; do
  group='' parent=''
  while read -r key value rest; do
    case $key in
      PPid:) parent=$value ;;
      Gid:) group=$value && break ;;
    esac
  done 2>/dev/null <"$process/status"
  [ "$group" = "$1" ] && [ "$parent" != 0 ] || continue
  kill -s "$2" "${process#/proc/}" 2>/dev/null || :
done

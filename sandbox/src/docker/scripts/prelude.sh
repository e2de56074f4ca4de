# Begins every script: $1 is the workspace, $2 a path in it. Nothing that came from outside is ever part of a script.
# Ends with one of the numbers that ../call.rs names.
set -uf
W=$1 P=$2
shift 2

# resolve PATH follow|keep: R is where PATH leads, without links on the way; its last name may be missing, and is
# followed only with `follow`. What leads out of the workspace is denied.
resolve() {
  rest=${1#"$W"} R=$W links=0
  while :; do
    while [ "$rest" != "${rest#/}" ]; do rest=${rest#/}; done
    [ -n "$rest" ] || return 0
    name=${rest%%/*}
    rest=${rest#"$name"}
    case $name in
      .) continue ;;
      ..)
        [ "$R" != "$W" ] || exit 72
        R=${R%/*}
        continue
        ;;
    esac
    [ -d "$R" ] || exit 74
    [ -x "$R" ] || exit 72
    if [ -L "$R/$name" ] && { [ "$2" = follow ] || [ -n "$rest" ]; }; then
      links=$((links + 1))
      [ "$links" -le 40 ] || exit 72
      target=$(readlink -n -- "$R/$name" && echo x) || exit 72
      target=${target%x}
      case $target in
        "$W" | "$W"/*) R=$W rest=/${target#"$W"}$rest ;;
        /*) exit 72 ;;
        *) rest=/$target$rest ;;
      esac
      continue
    fi
    [ -z "$rest" ] || [ -e "$R/$name" ] || exit 71
    R=$R/$name
  done
}

# facts PATH: F is `MODE SIZE SECONDS VERSION` of what PATH leads to. The version is `-` where no file can be swapped: this
# container has no stat(1) that tells nanoseconds, or no flock(1).
facts() {
  F=$(stat -L -c '%f %s %Y %i-%s-%.9Y-%.9Z' -- "$1") || return 1
  case ${F##* } in
    *.*.*) command -v flock >/dev/null 2>&1 || F="${F% *} -" ;;
    *) F="${F% *} -" ;;
  esac
}

# lock DIRECTORY: until the end of this script no other one that locks changes entries of it. Fails after 5 s: a command may
# hold that lock, too.
lock() {
  command -v flock >/dev/null 2>&1 && [ -d "$1" ] && [ -r "$1" ] || return 1
  exec 9<"$1"
  tries=50
  until flock -n 9 2>/dev/null; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || return 1
    sleep 0.1
  done
}

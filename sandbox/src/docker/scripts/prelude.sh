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

# $1 are the permission bits of each directory that is made.
waiting=${P#"$W"} at=$W
while [ -n "${waiting#/}" ]; do
  waiting=${waiting#/}
  at=$at/${waiting%%/*}
  waiting=${waiting#"${waiting%%/*}"}
  resolve "$at" follow
  [ ! -d "$R" ] || continue
  # A file, or a link to nothing.
  if [ -e "$R" ] || [ -L "$at" ]; then exit 74; fi
  mkdir -m "$1" -- "$R" 2>/dev/null || [ -d "$R" ] || exit 72
done

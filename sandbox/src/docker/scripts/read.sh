# $1 and $2 are the range (-1: to the end), $3 the most bytes. Facts in one line, then the bytes.
from=$1 until=$2 most=$3
resolve "$P" follow
[ ! -d "$R" ] || exit 73
[ -e "$R" ] || exit 71
[ -f "$R" ] && [ -r "$R" ] || exit 72
exec 3<"$R" || exit 72
facts /proc/self/fd/3 || exit 70
size=${F#* }
size=${size%% *}
if [ "$until" -lt 0 ] || [ "$until" -gt "$size" ]; then until=$size; fi
if [ "$from" -gt "$size" ]; then from=$size; fi
if [ "$until" -lt "$from" ]; then until=$from; fi
length=$((until - from))
[ "$length" -le "$most" ] || exit 77
echo "$F $from $until"
if [ "$from" -gt 0 ]; then
  tail -c "+$((from + 1))" <&3 | head -c "$length"
else
  head -c "$length" <&3
fi

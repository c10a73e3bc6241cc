#!/bin/sh
# rollout.sh rolling|blue-green URL: every replica of the fleet becomes one of version 2, and no stream is dropped.
set -e
fleet=$2/fleet
join() { curl -sf "$fleet/replicas" -d "{\"flags\": \"--version 2\", \"weight\": $1}" -o /dev/null; }
old=$(curl -sf "$fleet" | grep -o '"name": "r[0-9]*"' | grep -o 'r[0-9]*')
if [ "$1" = rolling ]; then
  for one in $old; do
    join 1
    curl -sf -X DELETE "$fleet/replicas/$one?grace=30s" -o /dev/null
  done
else
  blue= green=
  for one in $old; do join 0; blue=$blue,0 green=$green,1; done
  weights=$(echo "$blue$green" | cut -c2-)
  curl -sf -X PUT "$fleet/route" -d "{\"route\": \"weighted=$weights\"}" -o /dev/null
fi

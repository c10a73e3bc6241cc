"""An autoscaler of thirty lines: as many replicas as leave each WANTED requests under way, by the fleet's own metrics.

autoscaler.py URL WANTED MOST. It looks four times a second and waits for each replica that it starts, as the real ones
wait for a node, an image and weights: that is the lag which a load test has to show. It ends with the fleet.
"""

import json
import math
import re
import sys
import time
import urllib.request

url, wanted, most = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])


def ask(path: str, body: dict[str, str] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url + path, data), timeout=60) as answer:
        return str(answer.read().decode())


def replicas_needed(page: str) -> tuple[int, int]:
    """(how many are up, how many it takes), as a horizontal autoscaler of Kubernetes reckons."""
    up = int(re.findall(r'^reference_fleet_replicas\{state="up"\} (\d+)', page, re.MULTILINE)[0])
    under_way = sum(map(int, re.findall(r"^reference_fleet_in_flight\S* (\d+)", page, re.MULTILINE)))
    return up, min(most, max(1, math.ceil(under_way / wanted)))


while True:
    try:
        up, needed = replicas_needed(ask("/metrics"))
        if needed > up:
            print(f"{time.strftime('%X')} {up} replicas, {needed} needed", flush=True)
            ask("/fleet/replicas", {})
    except OSError:
        break
    time.sleep(0.25)

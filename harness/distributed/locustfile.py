"""The shipped locustfile: ``locust -f "$(python -m plimsoll.harness.distributed.locustfile)"`` with ``--master``,
``--worker``, or alone.

Locust's own command line, page, charts for Kubernetes and fleet tooling serve unchanged; ``docs/guide/distributed.md``
has the commands. Run as a program it prints its own path, for ``-f``.
"""

from __future__ import annotations

if __name__ == "__main__":
    print(__file__)
else:
    from plimsoll.harness.distributed.locust_ import PlimsollAgent as PlimsollAgent
    from plimsoll.harness.distributed.locust_ import attach

    attach()

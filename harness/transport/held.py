"""This module bounds what one worker holds of what servers say: in flight, waiting, and while it is taken apart.

Whenever so many bytes have come, the answers in flight are weighed; while they are over the budget the biggest is given
up. The compiled engine does the same (``engine/pool.c``). Taking an answer apart costs many times its size, so one that
could cost too much is not taken apart.
"""

from __future__ import annotations

import contextlib
import os
import resource
from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path

from plimsoll.harness.exchange import Exchange
from plimsoll.slo.records.records import Status

#: The budget, in bytes, where there is memory for it. Else a quarter of what this process may have.
MOST = 1 << 30
SHARE = 4
#: The same of finished answers that wait to be taken apart, and of what taking one apart may cost.
MOST_LATER = 4 << 30
SHARE_WAITING, SHARE_READING = 4, 8
#: What taking an answer apart costs at most, in bytes: for each of its own (mostly the JSON parser's working space),
#: and for each of these, with which a value, an event or a line begins or ends (and no other way is shorter).
_BYTE_COST, _MARKS, _MARK_COST = 17, (b",", b"[", b"{", b"\n"), 100
#: The same of binary messages: for each byte, for each zero (the length of an empty message in it, two bytes in all),
#: for each mark.
_BINARY_COST, _ZERO_COST, _MESSAGE_COST = 24, 60, 150
#: No answer costs more than so many times its size.
WORST = _BYTE_COST + _MARK_COST
#: Of an answer that isn't read so much is kept, for what its beginning says.
_KEPT = 4096
#: The answers are weighed whenever so many bytes have come.
WEIGH_EVERY = 8 << 20
#: Descriptors of a worker that are no connections: pipes, timers, segments, libraries; of these it opens later.
RESERVED_FILES, LATER_FILES = 64, 16
_MEMORY_MAX = Path("/sys/fs/cgroup/memory.max")


def memory() -> int:
    """What this process may have, in bytes: by the host's memory, its own limits (``ulimit -v``, ``-d``) and its
    container's.
    """
    limits = [resource.getrlimit(which)[0] for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    found = [limit for limit in limits if limit != resource.RLIM_INFINITY]
    found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or "max"
        found.append(int(_MEMORY_MAX.read_text(encoding="ascii")))
    return min(found)


def highest_fd() -> int:
    """The last descriptor that a connection may have: those beyond it are for the worker's own files. A segment that
    can't be opened would stay in memory, and so would all that follow.
    """
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (soft if soft != resource.RLIM_INFINITY else 1 << 62) - LATER_FILES - 1


def budget() -> int:
    """What all answers in flight may hold together, in bytes."""
    return min(MOST, memory() // SHARE)


def waiting() -> int:
    """What finished answers that wait to be taken apart may hold together, in bytes."""
    return min(MOST_LATER, memory() // SHARE_WAITING)


def reading() -> int:
    """What taking one answer apart may cost, in bytes."""
    return min(MOST_LATER, memory() // SHARE_READING)


def text_cost(exchange: Exchange) -> int:
    """What it takes at most to take an answer apart that is JSON, lines, events, or nothing but audio, in bytes."""
    body = exchange.body
    return _BYTE_COST * len(body) + _MARK_COST * sum(map(body.count, _MARKS)) + _MESSAGE_COST * len(exchange.mark_end)


def binary_cost(exchange: Exchange) -> int:
    """The same of an answer in binary messages."""
    body = exchange.body
    return _BINARY_COST * len(body) + _ZERO_COST * body.count(b"\0") + _MESSAGE_COST * len(exchange.mark_end)


def oversized(exchange: Exchange, limit: int, cost: Callable[[Exchange], int] = text_cost) -> bool:
    """True if taking the answer apart may cost more than ``limit`` bytes: then it has failed, and only its beginning is
    left.
    """
    size = len(exchange.body)
    if size * WORST <= limit or cost(exchange) <= limit:
        return False
    if exchange.status == Status.OK:
        exchange.status = int(Status.PROTOCOL)
        exchange.error = (
            f"the answer has {size:,} bytes, and to take it apart could need more than {limit >> 20} MiB, which is "
            "what this worker has for that. Ask for less at once, or give it more memory"
        )
    left = bisect_right(exchange.mark_end, _KEPT)
    exchange.body = exchange.body[: exchange.mark_end[left - 1] if left else 0]
    del exchange.mark_ns[left:], exchange.mark_end[left:]
    if exchange.session is not None:
        del exchange.session.texts[left:]
    return True


def too_much(limit: int) -> str:
    """The error of an answer that was given up."""
    return (
        f"the answers in flight held more than {limit >> 20} MiB together, and this one the most of it: it was given "
        "up. Lower the concurrency, or add workers, if answers of this size are right"
    )


def relieve(flying: Iterable[Exchange], give_up: Callable[[Exchange, int, str], None], limit: int) -> None:
    """While the answers of ``flying`` hold more than ``limit`` bytes, give up the biggest, without what came of it."""
    sizes = {exchange: exchange.bytes_in + 16 * len(exchange.mark_end) for exchange in flying}
    held = sum(sizes.values())
    while held > limit:
        biggest = max(sizes, key=sizes.__getitem__)
        held -= sizes.pop(biggest)
        give_up(biggest, int(Status.PROTOCOL), too_much(limit))
        biggest.body.clear()  # whoever still has it
        del biggest.mark_ns[:], biggest.mark_end[:]
        if biggest.session is not None:
            biggest.session.texts.clear()

"""What the compiled engine (harness/engine/*.c) offers Python."""

from collections.abc import Sequence
from typing import Any

WIRE_ERRORS: tuple[str, ...]

def fold(
    body: bytes | bytearray, mark_ns: object, mark_end: object, before: bytes, after: bytes, /
) -> tuple[bytes, bytes, bytes] | None: ...
def read_response(
    pieces: list[bytes], head_request: bool, eof: bool, /
) -> tuple[bool, str | None, int, int, int, bytes, bytes, int]: ...

class Engine:
    def __init__(
        self,
        addresses: Sequence[tuple[int, str, int] | tuple[int, str, int, int]],
        run_id: bytes,
        timeout_ns: int,
        connect_timeout_ns: int,
        max_connections: int,
        outstanding_limit: int,
        send_request_id: bool,
        stamping: bool,
        spin_ns: int,
        held_limit: int = 1 << 30,
        waiting_limit: int = 4 << 30,
        highest_fd: int = 1 << 62,
        first_query: int = 0,
    ) -> None: ...
    def set_requests(self, requests: list[tuple[bytes, bytes, bool] | None] | dict[int, Any], /) -> None: ...
    def set_plain(self, success: bytes, needles: list[bytes], /) -> None: ...
    def open_lane(
        self,
        phase: int,
        due: object,
        ids: object,
        offsets: object,
        sample: object,
        payload: object,
        limit: int,
        cancel: object | None = None,
        whole: bool = True,
        requests: list[tuple[bytes, bytes, bool]] | None = None,
        /,
    ) -> None: ...
    def closed_lane(
        self,
        phase: int,
        offsets: object,
        sample: object,
        payload: object,
        slots: int,
        first_id: int,
        id_step: int,
        ends_at_t0: bool,
        max_queries: int,
        min_queries: int,
        min_duration_ns: int,
        cancel: object | None = None,
        whole: bool = True,
        requests: list[tuple[bytes, bytes, bool]] | None = None,
        /,
    ) -> None: ...
    def more(
        self,
        phase: int,
        due: object | None,
        ids: object | None,
        offsets: object,
        sample: object,
        payload: object,
        cancel: object | None,
        whole: bool,
        requests: list[tuple[bytes, bytes, bool]] | None = None,
        /,
    ) -> None: ...
    def used(self, phase: int, /) -> tuple[int, int]: ...
    def bell(self) -> int: ...
    def turn(
        self,
        query_id: int,
        sample_ix: int,
        payload: int,
        due_ns: int,
        cancel_ns: int,
        words: tuple[bytes, bytes, bool],
        /,
    ) -> None: ...
    def turned(self) -> None: ...
    def open(self, connections: int, /) -> None: ...
    def go(self, t0_ns: int, max_duration_ns: int, /) -> None: ...
    def stop(self) -> None: ...
    def give_up(self, status: int, /) -> None: ...
    def collect(self, limit: int, /) -> tuple[bytes, bytes, bytes]: ...
    def state(self) -> tuple[int, int]: ...
    def counters(self) -> dict[str, object]: ...
    def close(self) -> None: ...

"""The compiled loop of the oracle (reference_server/oracle/*.c)."""

from typing import NoReturn

def serve(
    listener: int,
    created_s: int,
    ttft_ns: int,
    itl_ns: int,
    tokens: int,
    jitter: bytes,
    service: bytes,
    seed: int,
    stalls: bytes,
    spin_ns: int,
    n_rows: int,
    stamp_bytes: int,
) -> NoReturn: ...

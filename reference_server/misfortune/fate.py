"""What the faults have in store for one request, and the refusals that they make. Holds no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from plimsoll.reference_server.values.errors import RequestError


class Break(Enum):
    """How an answer breaks off."""

    CLOSE = "close"
    """The connection is closed."""
    RESET = "reset"
    """It is reset: a TCP RST, and what was under way is lost."""
    MUTE = "mute"
    """Nothing more comes, and it stays open until the client gives up."""


@dataclass(frozen=True, slots=True)
class Misfortune:
    """One request's share; token positions are -1 for never."""

    delay_ns: int = 0
    """The first byte waits so long."""
    error_at: int = -1
    cut_at: int = -1
    break_by: Break = Break.CLOSE
    """How the answer breaks off at ``cut_at``."""
    hold_ns: int = 0
    """So long after its arrival the request reaches the model."""
    content_type: str = ""
    """The content type that the answer is labelled with; "" for the true one."""
    drip_bytes: int = 0
    """The answer's bytes come in pieces of so many, 0 for all at once, ..."""
    drip_ns: int = 0
    """... one piece each so many nanoseconds."""

    @property
    def breaks_at_once(self) -> bool:
        """Does not even the first byte come?"""
        return self.cut_at == 0 and self.break_by is not Break.CLOSE


def scripted_status(status: int) -> RequestError:
    """The refusal a request asked for itself."""
    return refusal(status, "status", 1)


def refusal(status: int, cause: str, retry_after_s: int) -> RequestError:
    """A scripted refusal; Retry-After goes with 429 and 503 only."""
    return RequestError(
        status,
        f"scripted fault: {cause}",
        kind="server_error" if status >= 500 else "invalid_request_error",
        code="scripted_fault",
        retry_after_s=retry_after_s if status in (429, 503) else None,
    )

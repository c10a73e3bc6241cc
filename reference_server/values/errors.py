"""What can go wrong, as the caller of the server sees it. Holds no behaviour."""

from __future__ import annotations


class ConfigError(ValueError):
    """The server was asked to start with settings it can't honour; the message ends with the next step."""


class RequestError(Exception):
    """A request is refused or failed before its first answer byte; it carries all that the reply needs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s


class StreamFailure(Exception):
    """The answer failed after it had begun: a stream says so in an event, under status 200; an answer in one piece has ``status``."""

    def __init__(self, message: str, *, status: int = 500, code: str = "stream_failed") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class StreamCut(Exception):
    """The script says that the connection breaks here, with nothing more written."""

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
    """The answer failed after it had begun: an event of a stream under status 200; else it has ``status``."""

    def __init__(self, message: str, *, status: int = 500, code: str = "stream_failed") -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def refusal(self) -> RequestError:
        """The same as a reply."""
        return RequestError(self.status, str(self), kind="server_error", code=self.code)


class StreamCut(Exception):
    """The script says that the connection breaks here, with nothing more written."""


def invalid(field: str, message: str, code: str = "invalid_value") -> RequestError:
    """The 400 for a field, whose name begins the message."""
    return RequestError(400, f"{field}: {message}", param=field, code=code)


def too_long(n_prompt: int, n_new: int, max_context: int) -> RequestError:
    """The 400 for a prompt that leaves no room for its answer."""
    both = f"prompt of {n_prompt} tokens and max_tokens of {n_new} exceed the context of {max_context} tokens"
    message = f"{both}. Shorten the prompt or lower max_tokens"
    return RequestError(400, message, param="max_tokens", code="context_length_exceeded")


def unavailable(message: str, code: str, retry_after_s: int = 1) -> RequestError:
    """The 503 for want of room, and when to come back."""
    return RequestError(503, message, kind="server_error", code=code, retry_after_s=retry_after_s)


def shutting_down() -> RequestError:
    """What everybody is told who still waits when the server ends."""
    return unavailable("the server is shutting down", "shutting_down")

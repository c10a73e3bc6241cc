"""Two kinds of trouble: ours stops the run with one clear message, the endpoint's is data.

``HarnessFault`` is raised for what we or the user's input did wrong; its message says what, where and what to do
next. What the endpoint does wrong never raises: it becomes a record with a status and an error text.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.harness.exit_codes import ExitCode


class HarnessFault(Exception):
    """Something is wrong on our side of the wire. Carries every message of the same cause, and the exit code."""

    def __init__(self, errors: str | Sequence[str], code: ExitCode = ExitCode.USAGE) -> None:
        self.errors = [errors] if isinstance(errors, str) else list(errors)
        self.code = code
        super().__init__("\n".join(self.errors))

"""``python -m reference_server``: the server as a process of its own. Prints one JSON line when it serves."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Sequence

from reference_server.config import ReadyLine
from reference_server.errors import ConfigError
from reference_server.flags import EXIT_USAGE, config, parser
from reference_server.server import serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a server until it is told to stop; returns the exit code."""
    given = parser().parse_args(arguments)
    if given.until_stdin_closes:
        threading.Thread(target=_end_with_stdin, name="stdin", daemon=True).start()
    try:
        settings = config(given)
        asyncio.run(serve(settings, lambda line: _announce(line, given.ready_fd)))
    except ConfigError as error:
        return _complain(str(error))
    except OSError as error:
        return _complain(
            f"can't listen on {given.host}:{given.http_port}: {error.strerror}. Choose another --http-port"
        )
    except KeyboardInterrupt:  # before the signal handlers were in place
        return 0
    return 0


def _end_with_stdin() -> None:
    """Whoever started us holds the other end: when it is gone, however it went, so are we."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _announce(ready: ReadyLine, ready_fd: int | None) -> None:
    line = ready.as_json() + "\n"
    sys.stdout.write(line)
    sys.stdout.flush()
    if ready_fd is not None:
        with os.fdopen(ready_fd, "w") as pipe:
            pipe.write(line)


def _complain(message: str) -> int:
    sys.stderr.write(f"reference_server: {message}\n")
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())

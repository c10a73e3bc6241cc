"""``python -m plimsoll.reference_server``: the server as a process of its own. Prints one JSON line when it serves."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a server until it is told to stop; returns the exit code."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # while modules were imported, or before the signal handlers were in place
        return 0


def _run(arguments: Sequence[str] | None) -> int:
    # Imported here, so that Ctrl-C in the second that it takes is no traceback.
    import asyncio

    from plimsoll.reference_server.config import configure, parser
    from plimsoll.reference_server.server import serve
    from plimsoll.reference_server.values.errors import ConfigError

    words = sys.argv[1:] if arguments is None else arguments
    try:
        given = parser().parse_args(words)
        if given.until_stdin_closes:
            threading.Thread(target=_end_with_stdin, name="stdin", daemon=True).start()
        if given.ready_fd is not None and not (isinstance(given.ready_fd, int) and _is_open(given.ready_fd)):
            raise ConfigError(f"--ready-fd {given.ready_fd}: no such descriptor is open. Pass one to this process")
        announce = _announcer(given.ready_fd)
        if given.replicas is None:
            settings = configure(given)
            asyncio.run(serve(settings, lambda ready: announce(ready.as_json())))
        else:
            import uvloop

            from plimsoll.reference_server import crew, fleet

            uvloop.run(fleet.serve(crew.read(words), announce))
    except ConfigError as error:
        return _complain(str(error))
    except OSError as error:
        taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
        reason = str(error.strerror).partition(" (while")[0]
        flag = "--http-port" if taken else "--host"
        return _complain(f"can't listen on {given.host}:{given.http_port}: {reason}. Choose another {flag}")
    return 0


def _end_with_stdin() -> None:
    """Whoever started us holds the other end: when it is gone, however it went, so are we."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except (OSError, OverflowError):
        return False
    return True


def _announcer(ready_fd: int | None) -> Callable[[str], None]:
    """Writes the ready line to standard output and to the descriptor."""

    def announce(ready: str) -> None:
        line = ready + "\n"
        sys.stdout.write(line)
        sys.stdout.flush()
        if ready_fd is not None:
            with os.fdopen(ready_fd, "w") as pipe:
                pipe.write(line)

    return announce


def _complain(message: str) -> int:
    from plimsoll.reference_server.config import EXIT_USAGE

    for line in message.splitlines():
        sys.stderr.write(f"error: {line}\n")
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())

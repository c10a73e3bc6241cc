"""``python -m harness`` and the ``plimsoll`` command: the command line, with Ctrl-C heeded from its first import on."""

import sys

from harness import outlet


def main() -> None:
    """Load the command line and run it. An interrupt while it loads ends as any other does: nothing was sent, exit 130."""
    outlet.install()
    try:
        from harness.cli import main as command_line
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()

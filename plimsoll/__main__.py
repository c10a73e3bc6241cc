"""``python -m plimsoll`` and the ``plimsoll`` command: the command line, with Ctrl-C heeded from its first import on."""

import sys

# ``python -m`` looks into the current directory first, and a user's json.py there is not ours to run. Only what the interpreter
# itself has loaded is used for this.
if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] != __file__.removesuffix("/plimsoll/__main__.py"):
    del sys.path[0]

from plimsoll.harness.process import outlet


def main() -> None:
    """Load the command line and run it. An interrupt while it loads ends as any other does: nothing was sent, exit 130."""
    outlet.install()
    try:
        if sys.argv[1:] == ["--version"]:  # which needs no command line
            from plimsoll.harness.host.manifest import package_version

            print(f"plimsoll {package_version()}")
            return
        from plimsoll.harness.verbs.cli import main as command_line
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()

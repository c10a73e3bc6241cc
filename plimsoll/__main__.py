"""``python -m plimsoll`` and the ``plimsoll`` command: the command line; Ctrl-C ends it from its first import on."""

import gc
import sys

# ``python -m`` looks into the current directory first, and a user's json.py there is not ours to run. Only what the
# interpreter itself has loaded is used for this.
if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] != __file__.removesuffix("/plimsoll/__main__.py"):
    del sys.path[0]


def main() -> None:
    """Load the command line and run it. An interrupt ends it with exit code 130, also while it loads."""
    try:
        _run()
    finally:
        # CPython notes that a KeyboardInterrupt left a text given to exec, as the making of a dataclass is, and then
        # ends by SIGINT whatever exit code was chosen since. Another text clears the note.
        exec("")


def _run() -> None:
    from plimsoll.harness.process import interrupts

    interrupts.install()
    try:
        from plimsoll.harness.process import outlet

        outlet.install()
        # What is loaded stays: to look through it again and again took a tenth of a gate's CPU.
        gc.set_threshold(20_000)
        if sys.argv[1:] == ["--version"]:  # which needs no command line
            from plimsoll.harness.host.manifest import package_version

            print(f"plimsoll {package_version()}")
            return
        from plimsoll.harness.verbs.cli import main as command_line
    except KeyboardInterrupt:
        interrupts.settle()
        print("error: interrupted", file=sys.stderr)
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()

"""``python -m harness`` is the ``plimsoll`` command."""

from harness.cli import main

if __name__ == "__main__":
    main()

"""The ready-made scenarios: which there are, and what each says of itself. None is checked here."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

#: A text at the top of a file, which may go on in lines that are indented.
_HEAD = re.compile(r"^(kind|description): (?:>-\n)?(.+(?:\n +.+)*)$", re.MULTILINE)


def library() -> Mapping[str, Path]:
    """The ready-made scenarios by name."""
    folder = Path(__file__).parent / "library"
    return MappingProxyType({path.stem: path for path in sorted(folder.glob("*.yaml"))})


def summaries() -> list[dict[str, str]]:
    """``name``, ``kind`` and ``description`` of each, read off its text."""
    found = []
    for name, path in library().items():
        said = {key: " ".join(text.split()) for key, text in _HEAD.findall(path.read_text("utf-8"))}
        found.append({"name": name, "kind": said.get("kind", "mix"), "description": said["description"]})
    return found

"""Text of a scenario file -> plain mappings, lists, texts and numbers, with the line of each:
``plimsoll.documents.text`` with our errors.

A bake-off file is read by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plimsoll.documents import files

if TYPE_CHECKING:
    from plimsoll.documents.text import Mistake, Written


class ScenarioError(ValueError):
    """Every problem found, each as ``where: what. next step``, in the order of the scenario's own keys."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = list(errors)
        super().__init__("\n".join(self.errors))


class Document(dict[str, Any]):
    """The mapping that a file holds, and where it stands in it. ``path``: the file, None for a mere text."""

    def __init__(self, found: Written, where: str, path: Path | None = None) -> None:
        super().__init__(found.value)
        self.where, self.path = where, path
        self._found = found

    @property
    def lines(self) -> Mapping[tuple[str | int, ...], int]:
        """The line of each key path."""
        return self._found.lines

    def placed(self, errors: Iterable[str]) -> list[str]:
        """Errors that begin ``WHERE:key.path:`` with the line in which that key stands in this file."""
        return [self._placed(text) for text in errors]

    def _placed(self, text: str) -> str:
        begin = re.match(rf"{re.escape(self.where)}: ?([A-Za-z_][\w-]*(?:\.[\w-]+|\[\d+\])*): ", text)
        if begin is None:
            return text
        parts = re.findall(r"[^.\[\]]+", begin[1])
        path = tuple(int(part) if part.isdecimal() else part for part in parts)
        return f"{self.where}:{self._found.line(path)}: {begin[1]}: {text[begin.end() :]}"


def read_file(path: Path, where: str, instead: str) -> Document:
    """The mapping in a file; ``instead`` says what to give if it can't be read.

    Raises ``ScenarioError`` with every error of the YAML.
    """
    try:
        text = files.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError([f"{where}: cannot be read ({files.why(error)}). {instead}."]) from None
    return read_document(text, where, path)


def read_document(text: str, where: str, path: Path | None = None) -> Document:
    """The mapping in ``text``. Raises ``ScenarioError`` with every error of its YAML, each with its line."""
    from plimsoll.documents.text import written

    found = list(written(text, objects=False, merges=True))
    errors = [f"{where}:{_at(mistake)}: {mistake.what}." for one in found for mistake in one.errors]
    if not found:
        errors.append(f"{where}: the file is empty. Start with name: and kind:, or copy a library scenario.")
    elif isinstance(found[0].value, dict) and "apiVersion" in found[0].value:
        errors = [
            f"{where}: is an OpenSLO document. Check it with: plimsoll slo check FILE; judge a run by it with --slo "
            "FILE."
        ]
    elif len(found) > 1 and not errors:
        line = found[1].line(())
        errors.append(f"{where}:{line}: a second document begins here. Keep one, and take the --- out.")
    elif not isinstance(found[0].value, dict) and not errors:
        errors.append(f"{where}: the file is not a mapping. Write key: value lines, starting with name: and kind:.")
    if errors:
        raise ScenarioError(errors)
    return Document(found[0], where, path)


def _at(mistake: Mistake) -> str:
    return f"{mistake.line}" if mistake.column is None else f"{mistake.line}:{mistake.column}"

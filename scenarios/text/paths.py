"""File names inside a scenario: relative ones start at the scenario file's own folder.

Nothing is read here; a file that is missing, or is none, is reported when it is needed, with ``missing``.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from plimsoll.documents import files


def _resolve(value: str, info: ValidationInfo) -> str:
    folder = (info.context or {}).get("folder")
    path = Path(value).expanduser()
    return str(path if folder is None or path.is_absolute() else Path(folder) / path)


#: A pydantic field that reads a file name and holds it resolved against the validation context's ``folder``.
FileName = Annotated[str, Field(min_length=1), AfterValidator(_resolve)]


def missing(path: Path, where: str) -> str | None:
    """The error text when ``path`` is not a readable file, else None."""
    if not path.exists():
        near = sorted(p.name for p in path.parent.iterdir() if p.suffix == path.suffix) if path.parent.is_dir() else []
        hint = f" That folder has: {', '.join(near[:5])}." if near else f" Is {path.parent} the right folder?"
        return f"{where}: {path} does not exist.{hint} Relative paths start at the scenario file's folder."
    try:
        files.opened(path).close()
    except OSError as error:
        return f"{where}: {path} can't be read ({files.why(error)}). Give a file."
    return None


def expanded(names: Iterable[str], where: str) -> tuple[list[Path], list[str]]:
    """(files, errors): every name, or what matches it in order where it has ``*`` or ``?`` and is no file itself. Nothing is opened."""
    paths: list[Path] = []
    errors: list[str] = []
    for i, name in enumerate(names):
        if not glob.has_magic(name) or Path(name).exists():
            paths.append(Path(name))
            continue
        found = sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - an absolute pattern, which Path.glob refuses
        if not found:
            errors.append(
                f"{where}[{i}]: nothing is called {name}. Relative paths start at the scenario file's folder."
            )
        paths += [Path(each) for each in found]
    return paths, errors

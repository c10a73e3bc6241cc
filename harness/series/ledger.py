"""A session of several runs: the flags that all of them share, and its ledger, a JSON document in its folder that says
which are made.

The ledger is whole after every run. A session that is killed loses the run that was going on and no other: the same
command with ``--resume`` makes the rest.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.process.writing import Output, formats_of, one_on_stdout, write_json
from plimsoll.harness.series.one_run import ALONE, Staff
from plimsoll.harness.series.publish import Formats
from plimsoll.reports.format import unusable

Found = TypeVar("Found")
Document = TypeVar("Document", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Session:
    """The flags that search, sweep, compare, bake-off and cold start share.

    ``errors``: what is wrong with them already.
    """

    out: Path | None = None
    formats: Sequence[str] = ()
    resume: bool = False
    as_json: bool = False
    staff: Staff = ALONE
    errors: Sequence[str] = ()

    def outputs(self, known: Formats, of: str) -> tuple[tuple[Output, ...], list[str]]:
        """The files that are asked for, and every error in the flags. ``of``: what is published, in words."""
        outputs, errors = formats_of(self.formats, known, of, unusable(self.formats))
        return outputs, [*self.errors, *errors, *one_on_stdout(self.formats, self.as_json)]


@dataclass(frozen=True, slots=True)
class Ledger:
    """``file`` in the folder ``out``.

    ``whole``: what messages call the session; ``remedy``: what to do where it can't be written.
    """

    out: Path
    file: str
    whole: str = ""
    remedy: str = "Name a folder you may write"

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.out / self.file

    def before(self, resume: bool, read: Callable[[], Found]) -> Found | None:
        """What an earlier attempt left; None: nothing.

        Raises HarnessFault if the folder holds anything else, or nothing to resume.
        """
        if self.path.is_file():
            return read()
        if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
            raise HarnessFault(f"--out: {self.out} is not empty. Name a new folder, or delete that one")
        if resume:
            raise HarnessFault(f"--resume: {self.out} holds no {self.file}. Leave --resume out to begin")
        return None

    def go_on(
        self, resume: bool, made: str, there: Mapping[str, Any], here: Mapping[str, Any], more: Sequence[str] = ()
    ) -> None:
        """Raises HarnessFault unless to go on is what is asked for, and with the same: ``there`` as it was begun,
        ``here`` as it is given.

        ``made``: how far it came and what ``--resume`` does; ``more``: other differences, in words.
        """
        if not resume:
            raise HarnessFault(f"--out: {self.out} holds a {self.whole} with {made}, or name a new folder")
        was, now = (json.loads(json.dumps(dict(one))) for one in (there, here))
        differing = [f"{path}: {old!r} there, {new!r} now" for path, old, new in differences(was, now)]
        if differing := [*differing, *more]:
            raise HarnessFault(
                [f"--resume: {self.out}: {text}" for text in differing]
                + [f"--resume: {self.out} is another {self.whole}. Give what it was begun with, or name a new folder"]
            )

    def save(self, document: Mapping[str, Any]) -> None:
        """Write it, whole or not at all. Raises HarnessFault if it can't be written."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            write_json(self.path, document)
        except OSError as error:
            raise HarnessFault(f"--out: cannot write {self.path} ({error.strerror}). {self.remedy}") from None


def read_document(path: Path, model: type[Document], remedy: str) -> Document:
    """A document that an earlier session wrote. Raises HarnessFault if it is not whole, or of another version."""
    try:
        return model.model_validate_json(files.read_bytes(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        what = f"{where}: {first['msg']}" if where else first["msg"]
    except (OSError, ValueError) as error:
        what = " ".join(str(error).split())[:200]
    raise HarnessFault(f"{path}: damaged or from another version ({what}). {remedy}")


def differences(left: Any, right: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """(key path, left, right) wherever two documents differ; None for what is absent."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        keys = list(dict.fromkeys([*left, *right]))
        return [
            item
            for key in keys
            for item in differences(left.get(key), right.get(key), f"{path}.{key}" if path else str(key))
        ]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [
            item
            for i, (one, other) in enumerate(zip(left, right, strict=True))
            for item in differences(one, other, f"{path}[{i}]")
        ]
    return [] if left == right else [(path, left, right)]

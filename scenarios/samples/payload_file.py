"""The payloads of a file, each made again of its bytes when it is asked for: memory does not grow with the file.

Those of a small file stay in memory. What changes a file that is in use is an error, not another sample.
"""

import json
import os
import struct
import weakref
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.documents import files
from plimsoll.scenarios.samples.payload import Payload, Said, require_index
from plimsoll.scenarios.samples.recording import Spool
from plimsoll.scenarios.text.document import ScenarioError

#: Bytes of a file whose payloads stay in memory.
KEPT = 1 << 24
_PLACE = struct.Struct("=qq")
_AT_ONCE = 1 << 13


class PayloadFile:
    """``make``: a payload of an entry's value. ``file`` is for whoever finds the entries and adds their payloads.

    ``filtered`` says how many entries of the file were left out, by reason; ``labels``: see ``PayloadSource``. Raises
    OSError.
    """

    def __init__(self, path: Path, make: Callable[[Any], Payload], labels: Said | None = None) -> None:
        self._path, self._make = path, make
        self.labels: Said = labels or {}
        self.file = files.opened(path)
        weakref.finalize(self, self.file.close)
        self._stamp = self._found()
        self._kept: list[Payload] | None = [] if self._stamp[0] <= KEPT else None
        self._held, self._places = array("q"), Spool()
        self._n, self._lengths = 0, array("i")
        self.filtered: dict[str, int] = {}

    def _found(self) -> tuple[int, int]:
        found = os.fstat(self.file.fileno())
        return found.st_size, found.st_mtime_ns

    def __len__(self) -> int:
        return self._n

    def add(self, begin: int, n: int, payload: Payload) -> None:
        """The next one, of the ``n`` bytes from ``begin`` on."""
        self._n += 1
        self._lengths.append(payload.n_in)
        if self._kept is not None:
            self._kept.append(payload)
            return
        self._held.extend((begin, n))
        if len(self._held) >= _AT_ONCE:
            self._spool()

    def _spool(self) -> None:
        self._places.add(self._held.tobytes())
        self._held = array("q")

    def lengths(self, payload_ix: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """int64[n]: ``n_in`` of these."""
        return np.frombuffer(self._lengths, np.intc)[payload_ix].astype(np.int64)

    def payload(self, index: int) -> Payload:
        """Raises ScenarioError where the file was changed."""
        require_index(index, self._n)
        if self._kept is not None:
            return self._kept[index]
        if self._held:
            self._spool()
        begin, n = _PLACE.unpack(self._places.read(index * _PLACE.size, _PLACE.size))
        data = os.pread(self.file.fileno(), n, begin)
        if self._found() != self._stamp:
            raise ScenarioError(
                [f"{self._path}: it was changed while it was in use. Leave it alone until the run ends."]
            )
        return self._make(json.loads(data))

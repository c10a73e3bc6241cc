"""A payload source that is simply a list, and the cap on how many bad lines of a file are spelled out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plimsoll.scenarios.samples.payload import Payload

#: After this many, further problems of one file are only counted.
SHOWN = 20


@dataclass(frozen=True, slots=True)
class PayloadList:
    """``filtered`` says how many entries of the file were left out, by reason."""

    payloads: tuple[Payload, ...]
    filtered: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.payloads)

    def payload(self, index: int) -> Payload:
        if not 0 <= index < len(self.payloads):
            raise IndexError(f"there is no sample {index} among {len(self.payloads)}")
        return self.payloads[index]


def cap(errors: Sequence[str], where: str) -> list[str]:
    """The first ``SHOWN`` errors and how many more there are."""
    if len(errors) <= SHOWN:
        return list(errors)
    return [
        *errors[:SHOWN],
        f"{where}: and {len(errors) - SHOWN:,} more. Mend these first; the rest are often alike.",
    ]

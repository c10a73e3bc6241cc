"""The page's table of the same run in other tools' words, for whoever has to reconcile two reports."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.reports.parts.parts import Number
from plimsoll.reports.sections.peers import Peer
from plimsoll.reports.wording import units


def peer_rows(peers: Mapping[str, Peer]) -> list[dict[str, str]]:
    """One row a variant, in the report's order."""
    return [_row(name, peer) for name, peer in peers.items()]


def _row(name: str, peer: Peer) -> dict[str, str]:
    single = peer.percentile == "value"
    return {
        "name": name,
        "n": units.count(peer.n),
        "mean": _shown(peer.value if single else peer.mean, peer),
        "p50": "" if single else _shown(peer.p50, peer),
        "p99": "" if single else _shown(peer.p99, peer),
        "definition": peer.definition,
        "more": " · ".join(part for part in (_clock(peer), peer.note, peer.source) if part),
    }


def _clock(peer: Peer) -> str:
    clock = f"from {peer.start}" if peer.start else ""
    rank = "" if peer.percentile in ("", "value") else f"{peer.percentile} percentiles"
    return ", ".join(part for part in (clock, rank) if part)


def _shown(value: Number, peer: Peer) -> str:
    """A percentile that is null is infinite; a single number that is null is none, and the note says why."""
    if value is None:
        return units.INFINITE if peer.n and peer.percentile != "value" else units.NOTHING
    return units.human(value, peer.unit)

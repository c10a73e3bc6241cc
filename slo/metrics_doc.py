"""The generated parts of docs/reference/metrics.md: every metric from its module's docstring, and other tools'
variants.

``python -m plimsoll.slo.metrics_doc --write`` brings them up to date; a test fails when they are stale.
"""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

from plimsoll.slo.metrics.indicator import ENTRIES, Indicator, catalogue
from plimsoll.slo.peers.figures import CATALOGUE, Peer

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "metrics.md"


def render() -> str:
    """The page as it stands, with the parts between its markers made anew. They must be there, else ValueError."""
    text = PAGE.read_text(encoding="utf-8")
    for name, made in {"metrics": _metrics(), "awaited": _awaited(), "peers": _peers()}.items():
        found = re.search(rf"<!-- {name}: .*? -->\n?(.*?)\n?<!-- end -->", text, re.DOTALL)
        if found is None:
            raise ValueError(f"{PAGE.name} has no part <!-- {name}: ... -->. Put its markers back")
        text = text[: found.start(1)] + made + text[found.end(1) :]
    return text


def _metrics() -> str:
    known = catalogue()
    listed = sorted([*known.values(), *(known[f"{name}.NAME"] for name in known.families)], key=lambda one: one.name)
    lines = ["| metric | unit | better | formula | what it is |", "|---|---|---|---|---|"]
    lines += [
        f"| [`{item.name}`](#{item.name.replace('.', '').lower()}) | {_unit(item)} | {item.better} | {item.formula} | "
        f"{item.summary} |"
        for item in listed
    ]
    return "\n".join([*lines, "", *(_section(item) for item in listed)]).rstrip()


def _awaited() -> str:
    *names, last = (f"`{item.name}`" for item in catalogue().values() if item.awaited)
    return f"{', '.join(names)} and {last}"


def _peers() -> str:
    head = "| name | from | what | percentiles | one token | source | note |\n|---|---|---|---|---|---|---|"
    goodput = ("vllm.goodput", "distserve.attainment", "mlperf.goodput")
    return "\n".join([head, *(_peer(peer) for name, peer in CATALOGUE.items() if name not in goodput)])


def _peer(peer: Peer) -> str:
    note = [peer.differs] if peer.differs else []
    note += [f"unverified: {peer.unverified}"] if peer.unverified else []
    cells = (f"`{peer.name}`", peer.start, peer.formula, peer.percentile, peer.one_token, peer.source, "; ".join(note))
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def _unit(indicator: Indicator) -> str:
    return {"ns": "ns", "per_s": "per second", "1": "number", "bytes": "bytes"}[indicator.unit]


def _section(indicator: Indicator) -> str:
    text = inspect.getdoc(import_module(f"plimsoll.slo.indicators.{indicator.name.partition('.')[0]}")) or ""
    first, _, rest = text.partition("\n\n")
    body = f"{' '.join(first.split())}\n\n{rest}".replace("``", "`").strip()
    facts = (
        f"- one value per {ENTRIES[indicator.scope]}, in {_unit(indicator)}; {indicator.better} is better\n- needs: "
        f"{', '.join(indicator.needs)}\n- a failed request: {indicator.on_failure.value}\n- source: {indicator.source}"
    )
    return f"## {indicator.name}\n\n{body}\n\n{facts}\n"


def main(arguments: list[str]) -> int:
    """``--write`` brings the file up to date, ``--check`` says whether it is."""
    made = render()
    current = PAGE.read_text(encoding="utf-8") == made
    if arguments == ["--write"]:
        PAGE.write_text(made, encoding="utf-8")
    elif not current:
        print("docs/reference/metrics.md is out of date: run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

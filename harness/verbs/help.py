"""How the help of a long verb is laid out: flags in groups, the common ones on one screen, all of them by ``--help-all``.

A flag that stands in no group is the verb's own and always shown. A verb of few flags shows all of them in one list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

#: A verb of more flags than this groups them.
FEW = 20
#: group -> its flags, by the name of the parameter. ``--help`` shows these.
COMMON: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Target": ("url", "protocol", "model", "api_key_env"),
        "Load": ("kind", "rate", "concurrency", "duration", "queries", "prompt_tokens", "output_tokens"),
        "Objectives": ("slo", "preset"),
        "Result": ("live", "out", "resume", "format", "json_", "help"),
    }
)
#: The same; only ``--help-all`` shows these.
RARE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "More about the load": (
            *("mode", "reference", "arrival", "trace", "speed", "window", "cancel", "max_duration", "seed", "workers"),
            *("retries", "warmup"),
        ),
        "More about objectives": ("goodput", "confidence", "production_rate"),
        "Connection": (
            *("timeout", "connect_timeout", "header", "api_key_file", "option", "pace", "ca_file", "insecure"),
        ),
        "Several hosts": ("locust_master", "expect_workers", "locust_wait", "locust_web"),
    }
)
#: What a flag without a word for its value shows.
TYPES: Mapping[str, str] = MappingProxyType({"str": "TEXT", "int": "N", "float": "X"})
_GROUP = {name: group for groups in (COMMON, RARE) for group, names in groups.items() for name in names}
#: verb -> command lines to begin with.
EXAMPLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "run": (
            "plimsoll run demo",
            "plimsoll run --url http://127.0.0.1:8000 --rate 20 --duration 1m --slo 'p99(ttft) <= 200ms'",
            "plimsoll run chat.yaml --url http://127.0.0.1:8000 --slo slo.yaml --out run --format junit=slo.xml",
        ),
        "search": ("plimsoll search chat.yaml --url http://127.0.0.1:8000 --slo 'p99(ttft) <= 200ms' --out line",),
        "sweep": ("plimsoll sweep chat.yaml --url http://127.0.0.1:8000 --vary rate=2..64*2 --out curves",),
        "compare": (
            "plimsoll compare 'runs/main-*' 'runs/new-*'",
            "plimsoll compare --interleave chat.yaml --arm base=http://127.0.0.1:8000 --arm new=http://127.0.0.1:8001 --out ab",
        ),
        "coldstart": (
            "plimsoll coldstart --start 'vllm serve m --port 8000' --url http://127.0.0.1:8000 --slo 'ready <= 60s'",
        ),
    }
)


def is_long(parameters: Iterable[Any]) -> bool:
    """Whether a verb of these has groups at all."""
    return len(list(parameters)) > FEW


def groups(verb: str, parameters: Iterable[Any]) -> dict[str, list[Any]]:
    """The flags of a long verb by group: its own (arguments too), then the common groups, then the others."""
    found: dict[str, list[Any]] = {name: [] for name in (verb.capitalize(), *COMMON, *RARE)}
    for one in parameters:
        found[_GROUP.get(one.name, verb.capitalize())].append(one)
    return {name: own for name, own in found.items() if own}


def lay_out(verb: str, parameters: Iterable[Any], everything: bool) -> int:
    """Name each flag's panel and value, and hide what stands in a rare panel unless all is asked for. Returns how many are hidden."""
    hidden = 0
    for name, own in groups(verb, [one for one in parameters if one.param_type_name == "option"]).items():
        for one in own:
            one.rich_help_panel = name
            one.metavar = TYPES.get(one.bare_type()) if one.metavar is None else one.metavar
            one.hidden = name in RARE and not everything
            hidden += one.hidden
    return hidden

"""The ``labels:`` of a scenario file: a name for each, and where its value stands.

``backend: header x-served-by``, ``version: trailer x-version``, ``model: body $.model`` are read from answers,
``tenant: source tenant`` from the data set. Nothing is read here.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator

from plimsoll.scenarios.text.fields import refused_by

#: Where a value stands: three places of an answer, and the data set that payloads come from.
Origin = Literal["header", "trailer", "body", "source"]
MOST = 16
#: Names that rows have by themselves, or that Plimsoll gives.
RESERVED = frozenset(
    (
        *("class", "session", "turn", "attempt", "arm", "phase", "slice", "worker"),
        *("agent", "region", "status", "code"),
        *("prompt_tokens", "output_tokens", "admitted", "refused", "ideal_cached_tokens"),
        *("tries", "hedge", "hedges", "wasted_tokens", "degraded"),
        *("barge_in", "barge_in_stop", "overlap", "talked_over"),
    )
)
#: Labels that come by themselves where answers or prompts have such, those of a client with habits, of a bad network's
#: live audio, and of callers who interrupt.
ALWAYS = ("cached_tokens", "retry_after", "ideal_cached_tokens")
OF_CLIENT = ("attempt", "tries", "hedges", "hedge", "wasted_tokens")
OF_UPLINK = ("frames_lost", "frames_twice")
OF_CALLERS = ("barge_in", "barge_in_stop", "overlap", "talked_over")
#: Headers that hold credentials: their values are nobody's label.
_SECRET = frozenset(
    (
        *("authorization", "proxy-authorization", "www-authenticate", "proxy-authenticate", "authentication-info"),
        *("cookie", "set-cookie", "set-cookie2", "api-key", "x-api-key", "x-goog-api-key", "x-auth-token"),
        *("x-csrf-token", "x-amz-security-token"),
    )
)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,256}")
_FALLBACK = "header x-fallback, or body $.model = small-model"
_EXAMPLE = "Write it like: header x-served-by, trailer x-version, body $.model or source tenant"


def origin_of(text: str) -> tuple[Origin, str]:
    """Where a label's value stands, and under which name or path. Raises ValueError."""
    word, _, rest = text.strip().partition(" ")
    what = rest.strip()
    if word not in get_args(Origin) or not what:
        raise ValueError(f"{text[:80]!r} names no header, trailer, body or source. {_EXAMPLE}")
    origin: Origin = word  # type: ignore[assignment]
    if origin in ("header", "trailer"):
        what = what.lower()
        if not _HEADER.fullmatch(what):
            raise ValueError(f"{what[:80]!r} is no name of a {origin}. {_EXAMPLE}")
        if what in _SECRET:
            raise ValueError(f"{origin} {what} holds credentials, and a label stands in every report. Take another")
    return origin, what


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name[:80]!r} is no name of a label. Begin with a small letter; use small letters, digits and _"
        )
    if name in RESERVED:
        raise ValueError(f"{name} is a label that Plimsoll gives itself. Call this one otherwise")
    return name


def fallback_of(text: str) -> tuple[str, str]:
    """Where an answer says that it is degraded, and the value that says so; "": any but 0 and false. Raises
    ValueError.
    """
    place, _, value = (part.strip() for part in text.partition(" = "))
    if origin_of(place)[0] == "source":
        raise ValueError(f"{text[:80]!r}: an answer says that it is degraded, no data set. Write it like {_FALLBACK}")
    return place, value


#: A pydantic field that says how degraded answers are told.
Fallback = Annotated[str, refused_by(fallback_of)]


def _few(labels: Mapping[str, str]) -> Mapping[str, str]:
    if len(labels) > MOST:
        raise ValueError(f"has {len(labels)} labels. Keep at most {MOST}")
    return labels


#: A pydantic field of labels by name.
Labels = Annotated[
    dict[Annotated[str, AfterValidator(_named)], Annotated[str, refused_by(origin_of)]], AfterValidator(_few)
]


def of_source(labels: Mapping[str, str]) -> dict[str, str]:
    """The data set's key of each label that stands there."""
    found = {name: origin_of(text) for name, text in labels.items()}
    return {name: what for name, (origin, what) in found.items() if origin == "source"}


def of_answers(labels: Mapping[str, str]) -> dict[str, tuple[Origin, str]]:
    """Where in an answer each of the others stands."""
    found = {name: origin_of(text) for name, text in labels.items()}
    return {name: place for name, place in found.items() if place[0] != "source"}

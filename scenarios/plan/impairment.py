"""The uplink of a client on a bad network: ``impair:`` of a scenario, what it sends is lost, late, twice or slow.

The section is read here and nothing is sent; ``plimsoll/harness/transport/uplink.py`` behaves as it says.
"""

import re
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from plimsoll.scenarios.plan.habits import Share
from plimsoll.scenarios.text.fields import STRICT, Duration, format_duration

_BANDWIDTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(bit|kbit|mbit|gbit)\s*")
_BITS = {"bit": 1, "kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}


def bits_per_s(text: str) -> int:
    """Of ``64kbit`` 64,000. Raises ValueError."""
    match = _BANDWIDTH.fullmatch(text.lower())
    found = round(float(match[1]) * _BITS[match[2]]) if match else 0
    if not 1_000 <= found <= 10**12:
        raise ValueError(f"{text!r:.40} is no bandwidth. Write bits per second, from 1kbit up: 64kbit, 5mbit or 1gbit")
    return found


def _bandwidth(text: str) -> str:
    bits_per_s(text)
    return text.strip()


class ImpairSection(BaseModel):
    """What happens to what a client sends, between its write and its socket."""

    model_config = STRICT
    loss: Annotated[Share, Field(le=0.9)] | None = Field(
        default=None, description="Share that is lost: of live audio frames, which never come; else of segments of TCP."
    )
    duplicate: Annotated[Share, Field(le=0.9)] | None = Field(
        default=None, description="Share of live audio frames that are sent twice."
    )
    delay_ns: Duration = Field(default=0, alias="delay", le=60_000_000_000, description="Added to each write.")
    jitter_ns: Duration = Field(
        default=0, alias="jitter", description="The delay is drawn evenly from so much below to so much above it."
    )
    bandwidth: Annotated[str, AfterValidator(_bandwidth)] | None = Field(
        default=None, description="Bits per second of each connection, headers of TCP and IP among them: 64kbit, 5mbit."
    )

    @model_validator(mode="after")
    def _impairs(self) -> Self:
        if self.jitter_ns > self.delay_ns:
            jitter, delay = format_duration(self.jitter_ns), format_duration(self.delay_ns)
            raise ValueError(f"jitter {jitter} is above delay {delay}: nothing comes before it was sent. Lower it")
        if not (self.loss or self.duplicate or self.delay_ns or self.bandwidth):
            raise ValueError("impairs nothing. Give loss, duplicate, delay or bandwidth, or leave impair out")
        return self

    def model(self, seed: int, live: bool) -> dict[str, Any]:
        """As a client takes it, in plain numbers. ``live``: it sends frames of audio as they are spoken."""
        bits = bits_per_s(self.bandwidth) if self.bandwidth else 0
        share = {"loss": self.loss or 0.0, "duplicate": self.duplicate or 0.0}
        return {**share, "delay_ns": self.delay_ns, "jitter_ns": self.jitter_ns, "bits_per_s": bits, "seed": seed,
                "live": live, "shard": 0}  # fmt: skip

    def said(self) -> str:
        """In words, for whoever reads the report."""
        percent = [(self.loss, "lost"), (self.duplicate, "sent twice")]
        parts = [f"{share * 100:.4g} % {what}" for share, what in percent if share]
        if self.delay_ns:
            jitter = f" ± {format_duration(self.jitter_ns)}" if self.jitter_ns else ""
            parts.append(f"{format_duration(self.delay_ns)}{jitter} late")
        parts += [f"{self.bandwidth}/s a connection"] if self.bandwidth else []
        return f"the client's uplink is impaired: {', '.join(parts)}. It is part of every latency"

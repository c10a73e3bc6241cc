"""The synthesiser: built from the settings, computed by ``speech.tones``. It needs no weights, and refuses a device: sines are cheap."""

from __future__ import annotations

from plimsoll.reference_server.assembly.config import ServerConfig
from plimsoll.reference_server.speech.speaking import ToneSynthesiser


def build(config: ServerConfig) -> ToneSynthesiser:
    """The synthesiser, not yet started: it speaks as many texts at once as the recogniser hears streams."""
    return ToneSynthesiser(limit=config.max_batch + config.queue_limit)

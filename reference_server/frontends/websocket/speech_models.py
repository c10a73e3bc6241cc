"""Which speech model a handshake means, and what its speech holds. Its name may be left out: there is only one of each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.speech.alphabet import Unsayable, normalise
from plimsoll.reference_server.speech.seam import Audio, Recogniser, Synthesiser


def recogniser(service: Service, name: str = "") -> Recogniser:
    """The recogniser. Raises RequestError: 404 or 400 when that is no name of one, 503 while the server starts."""
    found = service.recogniser
    if found is None or name not in ("", found.name):
        raise service.unknown(name or "recogniser", "listens")
    return found


def synthesiser(service: Service, name: str = "") -> Synthesiser:
    """The synthesiser. Raises RequestError: 404 or 400 when that is no name of one, 503 while the server starts."""
    found = service.synthesiser
    if found is None or name not in ("", found.name):
        raise service.unknown(name or "synthesiser", "speaks")
    return found


async def let_go(pieces: AsyncIterator[Audio]) -> None:
    """End a speech before its last piece, so that what it holds is free at once and not when it is collected."""
    if isinstance(pieces, AsyncGenerator):
        await pieces.aclose()


def sayable(text: str) -> str:
    """The text as it will be heard; what has no spelling becomes a gap between words. For text that nobody vouches for, such as a model's."""
    said = []
    for character in text:
        try:
            said.append(normalise(character) or " ")
        except Unsayable:
            said.append(" ")
    return " ".join("".join(said).split())

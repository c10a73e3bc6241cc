"""How noise, speed and gain degrade what the recogniser hears of the synthesiser: the tables of
docs/reference/reference-server.md, section Speech.

``python -m tests.bench.speech_wer`` prints them. Sends no load, reads no clock, and is repeatable by its seed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np

from plimsoll.reference_server.models.tone_bank import ToneBank
from plimsoll.reference_server.seams.models import Audio, Heard
from plimsoll.reference_server.speech import audio as samples
from plimsoll.reference_server.speech.listening import Hearing, Piece
from plimsoll.reference_server.speech.resample import kernel
from plimsoll.reference_server.speech.tones import Utterance, normalise, symbols

RATE = 16_000
SNRS_DB = (20, 15, 10, 5, 0, -5)
SPEEDS = (0.25, 0.8, 1.25, 2.0, 3.0, 3.25, 3.5, 4.0)
TAPES = (0.96, 0.97, 0.98, 1.02, 1.03, 1.04)
GAINS_DB = (12, 6, -20, -40, -50, -60, -70)
_WORDS = """the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not what all were we
when your can said there use an each which she do how their if will up other about out many then them these so some her would make like
him into time has look two more write go see number no way could people my than first water been call who oil its now find long down
day did get come made may part over new sound take only little work know place year live me back give most very after thing our just
name good sentence man think say great where help through much before line right too mean old any same tell boy follow came want show
also around form three small set put end does another well large must big even such because turn here why ask went men read need land
different home us move try kind hand picture again change off play spell air away animal house point page letter mother answer found
study still learn should country plant last school father keep tree never start city earth eye light thought head under story""".split()  # noqa: E501, SIM905


def texts(n: int, seed: int, n_words: int = 12) -> list[str]:
    """Sentences of common words, without sense."""
    rng = np.random.default_rng(seed)
    return [" ".join(_WORDS[i] for i in rng.integers(0, len(_WORDS), n_words)) for _ in range(n)]


def spoken(text: str, rate: int = RATE, speed: float = 1.0) -> Audio:
    """What the synthesiser says."""
    utterance = Utterance(symbols(normalise(text)), rate, speed)
    return utterance.render(0, utterance.n_samples)


def heard(bank: ToneBank, audio: Audio, rate: int = RATE) -> list[Heard]:
    """What the recogniser hears, the whole audio as one utterance."""
    hearing = Hearing(bank, 1)
    piece = Piece(hearing.open(0, rate, kernel(rate), None, False), audio, "finish")
    hearing.hear([piece])
    return piece.heard


def noisy(audio: Audio, snr_db: float, rng: np.random.Generator) -> Audio:
    """White noise over the whole band, its power relative to the mean power of the audio."""
    power = float(np.mean(audio.astype(np.float64) ** 2))
    noise = rng.normal(0, np.sqrt(power * 10 ** (-snr_db / 10)), len(audio))
    return (0.5 * (audio + noise)).astype(np.float32)


def louder(audio: Audio, gain_db: float) -> Audio:
    """Through 16 bits, which clip what is too loud and lose what is too soft."""
    return samples.pcm16_to_float(samples.float_to_pcm16((audio * 10 ** (gain_db / 20)).astype(np.float32)))


def errors(said: Sequence[str], got: Sequence[str]) -> int:
    """Words substituted, left out and put in: the Levenshtein distance."""
    row = list(range(len(got) + 1))
    for i, word in enumerate(said, 1):
        left_above, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            left_above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, left_above + (word != other))
    return row[-1]


def word_error_rate(
    bank: ToneBank, said: Sequence[str], play: Callable[[str], tuple[Audio, int]]
) -> tuple[float, float]:
    """Errors per word said, and the mean confidence of the words heard (nan without any).

    ``play`` gives audio and its rate.
    """
    wrong = n = 0
    sure: list[float] = []
    for text in said:
        audio, rate = play(text)
        words = [word for each in heard(bank, audio, rate) if each.kind == "final" for word in each.words]
        wrong += errors(text.split(), [word.text for word in words])
        n += len(text.split())
        sure += [word.confidence for word in words]
    return wrong / n, float(np.mean(sure)) if sure else float("nan")


def _table(head: str, rows: Sequence[tuple[str, tuple[float, float]]]) -> str:
    lines = [f"| {head} | WER | mean confidence |", "|---|---|---|"]
    for name, (rate, sure) in rows:
        lines.append(f"| {name} | {100 * rate:.1f} % | {'-' if np.isnan(sure) else f'{sure:.2f}'} |")
    return "\n".join(lines)


def main(n: int = 50, seed: int = 1) -> str:
    """The tables, over ``n`` sentences of twelve words."""
    bank = ToneBank()
    bank.warm_up(1)
    said = texts(n, seed)
    rng = np.random.default_rng(seed)

    def by(play: Callable[[str], tuple[Audio, int]]) -> tuple[float, float]:
        return word_error_rate(bank, said, play)

    noise = [("clean", by(lambda text: (spoken(text), RATE)))]
    noise += [(f"{snr} dB", by(lambda text, snr=snr: (noisy(spoken(text), snr, rng), RATE))) for snr in SNRS_DB]  # type: ignore[misc]
    speed = [(f"{x} x", by(lambda text, x=x: (spoken(text, speed=x), RATE))) for x in SPEEDS]  # type: ignore[misc]
    tape = [(f"{x} x", by(lambda text, x=x: (spoken(text), round(RATE * x)))) for x in TAPES]  # type: ignore[misc]
    gain = [(f"{x:+d} dB", by(lambda text, x=x: (louder(spoken(text), x), RATE))) for x in GAINS_DB]  # type: ignore[misc]
    heads = ("signal to noise", "said at speed", "played at speed, tones and all", "gain, through 16 bits")
    return "\n\n".join(_table(head, rows) for head, rows in zip(heads, (noise, speed, tape, gain), strict=True))


if __name__ == "__main__":
    sys.stdout.write(main() + "\n")

"""lag_slope: how fast the transcript falls behind the speaker, in seconds per second, by least squares over one
session.

The slope of ``transcript_lag`` over time. Above 0 the server is slower than real time and the lag grows as long as
anyone speaks; a session of 1x audio has no other real-time factor, and 1 / (1 - slope) is it. Below 0 it catches up.
Words come in steps, so short sessions scatter around 0: it takes three transcripts over a second or more, and
sessions with fewer are missing and satisfy a limit on a single request. A failed request ranks as +inf. Source: ours;
backlog growth as the test of real-time recognition.
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import lag_slope

INDICATOR = Indicator(
    name="lag_slope",
    title="Slope of the transcript lag",
    group="speech",
    rank=6,
    unit="1",
    needs=("chunk_ns", "chunk_cursor_ns", "media_start_ns", "media_ns", "pace"),
    formula="least-squares slope of transcript_lag over time",
    source="ours: backlog growth as the test of real-time recognition",
    summary="seconds that the transcript falls behind in each second of speech",
    compute=lag_slope,
    outside=lambda records: ~lag_slope(records)[1],
)

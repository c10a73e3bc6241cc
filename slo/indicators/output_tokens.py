"""output_tokens = n_out: tokens of output that one request delivered.

From the server's usage block where it gave one, otherwise counted as ``tokens_from`` says. A failed request
delivered 0; a success whose count is unknown is missing. Source: OpenAI's usage.completion_tokens.
"""

from plimsoll.slo.metrics.indicator import Indicator, said_by

INDICATOR = Indicator(
    name="output_tokens",
    title="Output tokens of a request",
    group="last",
    rank=2,
    unit="1",
    better="higher",
    needs=("n_out",),
    formula="n_out",
    source="OpenAI API, usage.completion_tokens",
    summary="tokens of output per request",
    compute=said_by("n_out"),
)

"""Conversations without times or lengths in tokens (ShareGPT, SGLang's agentic sets): no recording, and refused as one
with what to do instead.
"""

from plimsoll.scenarios.samples.recording import Recording
from plimsoll.scenarios.samples.rows import Head, Reading
from plimsoll.scenarios.samples.traces import Format
from plimsoll.scenarios.text.document import ScenarioError


def _detect(head: Head) -> bool:
    if head.text.lstrip().startswith("["):
        return '"conversations"' in head.text
    keys = head.entry.keys()
    timed = keys & {"timestamp", "delay", "input_length", "output_length", "captureData", "time"}
    return bool(keys & {"conversations", "messages"}) and not timed


def _read(reading: Reading, made: Recording) -> None:
    raise ScenarioError(
        [
            f"{reading.path}: conversations, which say neither when they came nor how long they are: no recording. "
            "Give source: {kind: sharegpt, path: ...} (or jsonl, for messages), and arrivals: kind server with a rate."
        ]
    )


FORMAT = Format(
    name="sharegpt",
    summary="Conversations (ShareGPT, SGLang's agentic sets): no recording; the error names the source to use",
    unit="none",
    sign="conversations, or messages without a time",
    detect=_detect,
    read=_read,
    takes=(),
)

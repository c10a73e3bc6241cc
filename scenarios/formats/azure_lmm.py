"""Azure's multimodal trace of 2025: as its LLM traces, with the number of pictures in each prompt."""

from plimsoll.scenarios.formats.azure import TAKES as AZURE
from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.recording import Recording
from plimsoll.scenarios.samples.rows import Head, Reading, read_csv
from plimsoll.scenarios.samples.traces import Format

TAKES = {**AZURE, "NumImages": Take("images", "count")}


def _detect(head: Head) -> bool:
    return TAKES.keys() <= set(head.columns)


def _read(reading: Reading, made: Recording) -> None:
    read_csv(reading, made, TAKES)


FORMAT = Format(
    name="azure-lmm",
    summary="Azure's multimodal trace of 2025: CSV with pictures",
    unit="UTC",
    sign="a first line with TIMESTAMP, NumImages, ContextTokens, GeneratedTokens",
    detect=_detect,
    read=_read,
    takes=(*TAKES,),
    columns=("images",),
)

"""Azure's multimodal trace of 2025: as its LLM traces, with the number of pictures in each prompt."""

from plimsoll.scenarios.formats.azure import TAKES as AZURE
from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.rows import read_csv
from plimsoll.scenarios.samples.traces import Format

TAKES = {**AZURE, "NumImages": Take("images", "count")}


FORMAT = Format(
    name="azure-lmm",
    summary="Azure's multimodal trace of 2025: CSV with pictures",
    unit="UTC",
    sign="a first line with TIMESTAMP, NumImages, ContextTokens, GeneratedTokens",
    detect=lambda head: TAKES.keys() <= {*head.columns},
    read=lambda reading, made: read_csv(reading, made, TAKES),
    takes=(*TAKES,),
    columns=("images",),
)

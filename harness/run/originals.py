"""originals.parquet: how long each request of a replay took when it was recorded, so that a report has both.

Written before the run, a piece at a time, in the plan's order; what it says is beside the verdict and never in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from plimsoll.harness.process.writing import whole
from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.scenario import Scenario

NAME = "originals.parquet"
_ROWS = 1 << 17


def leave(folder: Path, scenario: Scenario) -> None:
    """Write it, where the recording knows. Raises OSError."""
    pieces = scenario.originals()
    if pieces is None:
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(file: IO[bytes]) -> None:
        writer = None
        for piece in pieces:
            table = pa.table(dict(piece))
            writer = writer or pq.ParquetWriter(file, table.schema, compression="zstd")
            writer.write_table(table)
        if writer is not None:
            writer.close()

    whole(folder / NAME, write)


def load(folder: Path) -> Mapping[str, IntArray] | None:
    """Its columns; None where there are none, or none that can be read."""
    if not (folder / NAME).is_file():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(folder / NAME) as file:
            names = file.schema_arrow.names
            found, begin = {name: np.empty(file.metadata.num_rows, np.int64) for name in names}, 0
            for batch in file.iter_batches(_ROWS):  # into arrays of numpy's: large ones may live on disk
                for name in names:
                    found[name][begin : begin + len(batch)] = batch.column(name).to_numpy(zero_copy_only=False)
                begin += len(batch)
        return found
    except (OSError, pa.ArrowException, ValueError):
        return None

"""session_duration = done of a session's last turn - due of its first, in ns: one value a session, on its last row.

Think times are part of it: they are what the users take, and the same at any load. A session whose last turn failed was
abandoned and ranks as +inf. Of some of the rows (``{backend=a}``) it is that of whole sessions whose last turn is among
them. Only runs of kind ``sessions`` have it. Source: the session as the unit of a closed conversation in an open
arrival process (Schroeder, Wierman, Harchol-Balter 2006, "partly-open" systems).
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.sessions import lasted
from plimsoll.slo.records.queries import none
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    values = lasted(records)
    return none(records) if values is None else (values, ~np.isnan(values))


INDICATOR = Indicator(
    name="session_duration",
    title="Session duration",
    scope="query",
    needs=("due_ns", "done_ns", "status"),
    formula="done of the last turn - due of the first, on the last turn's row",
    source="Schroeder, Wierman, Harchol-Balter 2006 (partly-open systems)",
    summary="from when a session's first turn was due to the end of its last answer, think times included",
    compute=_compute,
)

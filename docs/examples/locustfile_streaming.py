"""Streaming users for Locust: a chat, and any other stream by the path of its text. docs/guide/locust.md explains it.

    plimsoll serve --model scripted --ttft 50ms --itl 10ms &
    locust -f docs/examples/locustfile_streaming.py --headless -u 20 -r 20 -t 30s --host http://127.0.0.1:8000

The exit code is the verdict on ``slo``: 0 pass, 1 an objective failed, 3 too little data to say, 4 the figures can't be
trusted.
"""

from __future__ import annotations

import random

from locust import between, task

from plimsoll.harness.distributed.locust_ import StreamingUser

QUESTIONS = ("What is a load line?", "Who was Samuel Plimsoll?", "Why do ships float?")


class Reader(StreamingUser):
    """Asks, reads the answer as it streams in, and thinks for a moment."""

    wait_time = between(0.1, 0.5)
    model = "scripted"
    slo = ("p99(ttft) <= 200ms", "p99(tpot) <= 30ms", "ratio(error) <= 1%")

    @task(3)
    def ask(self) -> None:
        """Under its usual name. An answer that says nothing is a failure, in Locust and in the verdict."""
        with self.chat(random.choice(QUESTIONS), max_tokens=16, catch_response=True) as answer:
            assert not answer.ok or answer.output_tokens, "the answer has no text"

    @task(1)
    def complete(self) -> None:
        """Any JSON stream: where its text is, and how it marks its end."""
        body = {"model": self.model, "prompt": random.choice(QUESTIONS), "max_tokens": 16, "stream": True}
        self.stream("/v1/completions", body, text_path="choices[0].text", name="completions")

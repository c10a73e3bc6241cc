"""Chromium without a window, told what to do over its debugging socket: to open a page and ask what it shows, in real
time.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


class Tab:
    """One page. ``problems``: what its scripts complained of and what it could not load."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.problems: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        async with asyncio.timeout(20):
            while True:
                message = await self._socket.receive_json()
                self._note(message)
                if message.get("id") == self._number:
                    assert "error" not in message, message
                    return dict(message["result"])

    def _note(self, message: dict[str, Any]) -> None:
        kind = message.get("method", "")
        if kind == "Runtime.exceptionThrown":
            self.problems.append(str(message["params"]["exceptionDetails"].get("exception", {}).get("description")))
        elif kind == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.problems.append(message["params"]["entry"]["text"])

    async def open(self, url: str, width: int = 1200, height: int = 2600, dark: bool = False) -> None:
        """Go to a page in a window of this size."""
        for domain in ("Runtime", "Log", "Page"):
            await self.call(f"{domain}.enable")
        await self.resize(width, height)
        scheme = "dark" if dark else "light"
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def resize(self, width: int, height: int) -> None:
        """Another size of the window."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str, seconds: float = 15.0) -> None:
        """Wait until it is true."""
        async with asyncio.timeout(seconds):
            while not await self.ask(f"Boolean({expression})"):
                await asyncio.sleep(0.05)

    async def picture(self, path: Path) -> None:
        """A PNG of the window."""
        found = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))


@asynccontextmanager
async def chromium() -> AsyncIterator[Tab]:
    """A browser with one empty tab; it is stopped at the end."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
                "--hide-scrollbars", "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            port = await _port(Path(profile) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    tabs = [tab for tab in await answer.json() if tab["type"] == "page"]
                async with session.ws_connect(tabs[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    yield Tab(socket)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            if process.poll() is None:
                process.kill()
                process.wait()


async def _port(path: Path) -> int:
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(OSError, ValueError, IndexError):
                return int(path.read_text().splitlines()[0])
            await asyncio.sleep(0.05)

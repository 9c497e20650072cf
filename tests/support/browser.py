# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Chromium without a window, driven over its debugging pipe: no driver, no socket, no package."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys
import time
import typing as t

Dict = dict[str, t.Any]
_LIMIT_S = 60.0
_QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# It reads commands from descriptor 3 and writes to 4.
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for place, end in enumerate(ends, 3):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


class BrowserError(Exception):
    """The browser did not do what it was asked for."""


class Page:
    """The one page of a browser: it opens files, is shown in several ways, and is asked about with JavaScript."""

    def __init__(self, program: str, profile: pathlib.Path) -> None:
        read_here, write_there = os.pipe()
        read_there, self._to = os.pipe()
        self._from = read_here
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, str(read_there), str(write_there), program, *_QUIET]
            + [f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(read_there, write_there),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(profile)},
        )
        os.close(read_there)
        os.close(write_there)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._height = 900
        self.events: list[Dict] = []
        target = next(item for item in self.call("Target.getTargets")["targetInfos"] if item["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **values: t.Any) -> Dict:
        """Send a command of the DevTools protocol and return its result; events on the way are kept."""
        self._number += 1
        message: Dict = {"id": self._number, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                raise BrowserError(f"{method}: {answer['error']['message']}")
            else:
                return t.cast(Dict, answer["result"])

    def _receive(self) -> Dict:
        end = time.monotonic() + _LIMIT_S
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(0.0, end - time.monotonic()))[0]:
                raise BrowserError(f"no answer within {_LIMIT_S:.0f} s")
            data = os.read(self._from, 1 << 20)
            if not data:
                raise BrowserError("the browser has ended")
            self._buffer += data
        line, _end, self._buffer = self._buffer.partition(b"\0")
        return t.cast(Dict, json.loads(line))

    def open(self, file: pathlib.Path) -> None:
        """Open a file and wait until it is shown."""
        self.events.clear()
        self.call("Page.navigate", url=file.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def show(self, width: int, *, height: int = 900, dark: bool = False) -> None:
        """Show the page on a screen of this size, as a reader with this taste sees it."""
        phone = width < 640
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        taste = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media="screen", features=taste)

    def ask(self, script: str) -> t.Any:
        """Return the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"].get("exception", {}).get("description")))
        return answer["result"].get("value")

    def print_pdf(self) -> bytes:
        """Return what a printer gets on A4, with the page's own margins."""
        self.call("Emulation.setEmulatedMedia", media="print", features=[])
        size = {"paperWidth": 8.27, "paperHeight": 11.69}
        return base64.b64decode(
            self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True, **size)["data"]
        )

    def picture(self) -> bytes:
        """Return the whole page as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def complaints(self) -> list[str]:
        """Return what the console says, and each request beside the one for the page itself."""
        found = []
        for event in self.events:
            values = event.get("params", {})
            if event.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                found.append(json.dumps(values)[:300])
            elif event.get("method") == "Log.entryAdded":
                found.append(f"{values['entry']['text']} {values['entry'].get('url', '')}")
            elif event.get("method") == "Network.requestWillBeSent" and values.get("type") != "Document":
                found.append(f"request: {values['request']['url']}")
        return found

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(BrowserError, OSError):
            self._session = None
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)

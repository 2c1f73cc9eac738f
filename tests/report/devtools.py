"""A headless Chromium, driven over a pipe in its DevTools protocol; needs nothing but the standard library."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-extensions"
PATIENCE = 60.0  # seconds to wait for any answer


class Chromium:
    """A context manager: one browser with one tab. What it said and asked for is in `messages` and `requests`."""

    def __init__(self, folder: Path) -> None:
        self.messages: list[str] = []
        self.requests: list[str] = []
        self._count, self._buffer, self._loaded, self._session = 0, b"", False, ""
        theirs, self._to = os.pipe()
        self._from, answers = os.pipe()
        # the protocol is spoken on descriptors 3 and 4; they are first moved out of each other's way
        shell = f'exec 8<&{theirs} 9>&{answers}; exec 3<&8 4>&9 8<&- 9>&-; exec "$@"'
        words = [BROWSER or "", *FLAGS.split(), "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *words], pass_fds=(theirs, answers), stdin=null, stdout=null, stderr=null
        )
        os.close(theirs)
        os.close(answers)

    def __enter__(self) -> Chromium:
        tabs = self.ask("Target.getTargets")["targetInfos"]
        tab = next(one["targetId"] for one in tabs if one["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._session = ""
        try:
            self.ask("Browser.close")
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._to)
            os.close(self._from)

    def show(self, address: str, width: int, scheme: str) -> None:
        """Open a page in a window that wide, where the reader prefers "light" or "dark"."""
        phone = width < 500
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=phone)
        self.media("screen", scheme)
        self._loaded = False
        self.ask("Page.navigate", url=address)
        end = time.monotonic() + PATIENCE
        while not self._loaded:
            self._hear(end)

    def media(self, media: str, scheme: str) -> None:
        """Screen or print, light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[feature])

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path, whole: bool = False) -> Path:
        """What is seen, or the whole page, as PNG."""
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
        return path

    def pdf(self) -> bytes:
        """The page, printed."""
        self.ask("Emulation.setEmulatedMedia", media="")  # an emulated screen would be printed as such
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])

    def ask(self, method: str, **parameters: Any) -> Any:
        """The answer to a command of the protocol."""
        self._count += 1
        number = self._count
        command = {"id": number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            message = self._hear(end)
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    def _hear(self, end: float) -> Any:
        """The next message; events are noted on the way."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._from, 1 << 20) if ready else b""
            assert data, "Chromium does not answer"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, event: str | None, about: Any) -> None:
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Log.entryAdded":
            self.messages.append(about["entry"]["text"])
        elif event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.messages.append(json.dumps(about))
        elif event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

"""A real browser for tests: Chromium over its debugging pipe, without a network and without a library.

python tests/support/browser.py PAGE.html PICTURE.png [WIDTH HEIGHT]      the top of a page, in light colors
"""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """One tab. What the page logs as an error is in `faults`; every request but that of the page in `requests`."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.requests: list[str] = []

    def attach(self) -> None:
        """Make the tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **words: Any) -> dict[str, Any]:  # noqa: ANN401
        """One command and its answer."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": words}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._note(answer)

    def open(self, page: Path, width: int = 1100, height: int = 900, dark: bool = False, anchor: str = "") -> None:
        """Load a file in a window of that size, and wait until it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        calm = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, calm])
        self._events.clear()
        self.requests.clear()
        self.call("Page.navigate", url=page.absolute().as_uri() + anchor)
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._note(self._next())

    def run(self, script: str) -> Any:  # noqa: ANN401
        """The value of an expression on the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def hover(self, selector: str) -> None:
        """Move the mouse to the middle of an element."""
        self.run(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
        self.run(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )  # it tells of scrolling
        box = self.run(
            f"(() => {{const b = document.querySelector({selector!r}).getBoundingClientRect();"
            "return [b.left + b.width / 2, b.top + b.height / 2]})()"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])

    def press(self, key: str) -> None:
        """A key down and up."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        words: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": codes[key]}
        text = {"Enter": "\r", " ": " "}.get(key)
        self.call("Input.dispatchKeyEvent", type="keyDown", **words, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **words)

    def picture(self, file: Path, whole: bool = True) -> None:
        """A PNG of the page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            block = os.read(self._from, 1 << 20) if ready else b""
            assert block, "the browser does not answer"
            self._buffer += block
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        words = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.faults.append(str(words["exceptionDetails"]))
            case "Log.entryAdded" if words["entry"]["level"] in ("error", "warning"):
                self.faults.append(str(words["entry"]["text"]))
            case "Network.requestWillBeSent" if words["type"] != "Document":
                self.requests.append(str(words["request"]["url"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that ends with the block."""
    assert CHROMIUM is not None
    pipes = (*os.pipe(), *os.pipe())
    ours_out, ours_in = pipes[1], pipes[2]
    theirs_in, theirs_out = (fcntl.fcntl(one, fcntl.F_DUPFD, 20) for one in (pipes[0], pipes[3]))
    for one in (pipes[0], pipes[3]):
        os.close(one)

    def put_in_place() -> None:
        os.dup2(theirs_in, 3)
        os.dup2(theirs_out, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [CHROMIUM, *_FLAGS, f"--user-data-dir={folder}"],
            preexec_fn=put_in_place,
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            tab = Browser(ours_out, ours_in)
            tab.attach()
            yield tab
            tab._session = None
            tab.call("Browser.close")
        finally:
            os.close(ours_out)
            os.close(ours_in)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _main(page: str, picture: str, width: str = "1200", height: str = "900") -> None:
    with browser() as tab:
        tab.open(Path(page), int(width), int(height))
        tab.picture(Path(picture), whole=False)


if __name__ == "__main__":
    _main(*sys.argv[1:])

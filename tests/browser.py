"""A real Chromium, driven over two pipes (its DevTools protocol): clicks, keys, sizes, dark mode,
pictures. No port, no library.

A test takes the fixture `browser` and has the mark of this name by that (`tests/conftest.py`). Where
no Chromium is installed it is skipped, and says so; `make test-browser` lets it fail.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-sync"
    " --disable-component-update --no-first-run --disable-extensions --disable-dev-shm-usage"
    " --hide-scrollbars --remote-debugging-pipe"
)
MISSING = "no Chromium is installed; type: make chromium"
PATIENCE_S = 60.0
KEYS = {"ArrowDown": 40, "ArrowUp": 38, "Tab": 9, "Escape": 27, "Enter": 13}


class Browser:
    """One page of a Chromium. A context manager."""

    @staticmethod
    def find() -> str | None:
        return next((path for name in NAMES if (path := shutil.which(name))), None)

    def __init__(self, profile: Path) -> None:
        self.profile, self.buffer, self.number, self.session = profile, b"", 0, ""
        # what the page logged, raised or asked of the network
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        program = self.find()
        assert program is not None, MISSING
        theirs_in, self.ours_out = os.pipe()
        self.ours_in, theirs_out = os.pipe()

        def hand_over() -> None:  # the protocol wants descriptors 3 (read) and 4 (write)
            # away from 3 and 4, which they may be themselves
            moved = [os.dup(os.dup(one)) for one in (theirs_in, theirs_out)]
            for descriptor, number in zip(moved, (3, 4), strict=True):
                os.dup2(descriptor, number)

        command = [program, *FLAGS.split(), f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=hand_over,
            close_fds=False,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(one for one in targets if one["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.size(1280)
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError, AssertionError):
            self.session = ""
            self.ask("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.ours_in)
        os.close(self.ours_out)

    # -- the protocol -----------------------------------------------------------------------------

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.ours_out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE_S
        while True:
            found = self._read(until)
            if found.get("id") == self.number:
                assert "error" not in found, found
                return dict(found["result"])
            self.events.append(found)

    def _read(self, until: float) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.ours_in], [], [], max(0.0, until - time.monotonic()))
            assert ready, "Chromium does not answer"
            data = os.read(self.ours_in, 1 << 20)
            assert data, "Chromium is gone"
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        return dict(json.loads(message))

    # -- the page ---------------------------------------------------------------------------------

    def open(self, page: Path, fragment: str = "") -> None:
        """Loads the file anew, whatever was open."""
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=page.resolve().as_uri() + fragment)
        self.until("location.protocol + document.readyState === 'file:complete'")

    def visit(self, address: str) -> None:
        """Loads a page of a server."""
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=address)
        self.until("location.protocol + document.readyState === 'http:complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, script: str) -> None:
        """Waits until an expression is true: a link is followed a moment after the click."""
        until = time.monotonic() + PATIENCE_S
        while not self.run(script):
            assert time.monotonic() < until, script
            time.sleep(0.02)

    def size(self, width: int, height: int = 900) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def scheme(self, name: str) -> None:
        self.ask(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}]
        )

    def click(self, selector: str, text: str = "") -> None:
        """A real click in the middle of the first element that matches and holds this text."""
        chosen = (
            f"[...document.querySelectorAll({json.dumps(selector)})].find((one) =>"
            f" one.textContent.includes({json.dumps(text)}))"
        )
        where = self.run(
            f"(() => {{ const one = {chosen}; if (!one) return null; one.scrollIntoView({{block:"
            " 'center', behavior: 'instant'}); const box = one.getBoundingClientRect(); return"
            " [box.x + Math.min(box.width, 60) / 2, box.y + Math.min(box.height, 24) / 2]; })()"
        )
        assert where is not None, f"nothing matches {selector} {text!r}"
        for kind in ("mousePressed", "mouseReleased"):
            self.ask(
                "Input.dispatchMouseEvent",
                type=kind,
                x=where[0],
                y=where[1],
                button="left",
                clickCount=1,
            )

    def press(self, *keys: str) -> None:
        for key in keys:
            code = {"windowsVirtualKeyCode": KEYS[key]} if key in KEYS else {"text": key}
            # what Enter opens or sends hears the letter, not the key
            code |= {"text": "\r"} if key == "Enter" else {}
            self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **code)
            self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        self.ask("Input.insertText", text=text)

    def text(self, selector: str) -> str:
        """What stands in the first element that matches, hidden words too; "" where there is
        none."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))

    def picture(self, path: Path, *, whole: bool = False) -> None:
        shot = self.ask(
            "Page.captureScreenshot",
            format="png",
            captureBeyondViewport=whole,
            **({"clip": self._whole()} if whole else {}),
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    def _whole(self) -> dict[str, Any]:
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        return {
            "x": 0,
            "y": 0,
            "width": size["width"],
            "height": min(size["height"], 12_000),
            "scale": 1,
        }

    def faults(self) -> list[str]:
        """What the page logged or raised, and every request but that for the file itself and its
        inlined data."""
        self.run("1")
        found = []
        for event in self.events:
            method, params = event.get("method", ""), event.get("params", {})
            if method in (
                "Runtime.exceptionThrown",
                "Log.entryAdded",
                "Runtime.consoleAPICalled",
                "Page.javascriptDialogOpening",
            ):
                found.append(json.dumps(params)[:500])
            elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(
                ("file:", "data:", "about:")
            ):
                found.append(params["request"]["url"])
        return found

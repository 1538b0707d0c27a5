"""Control Chromium over the DevTools protocol: click and type like a person, and report problems."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp

# In seconds. No step of these tests takes long, so a longer wait would only delay the report of a failure.
_PATIENCE = 40.0
# Modifiers of the DevTools protocol.
CTRL, SHIFT = 2, 8
_KEYS = {
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Tab": (9, ""),
    " ": (32, " "),
    "Home": (36, ""),
    "End": (35, ""),
    "PageDown": (34, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
}
# Finds the first visible element that matches a selector and, if given, contains a text.
_FIND = """
(selector, text, exact) => [...document.querySelectorAll(selector)].find((one) => {
  const own = (one.getAttribute('aria-label') || '') + '\\n' + one.textContent;
  const fits = text === null || (exact ? own.split('\\n').some((part) => part.trim() === text) : own.includes(text));
  return fits && (one.checkVisibility ? one.checkVisibility() : true);
})
"""


class Chromium:
    """A browser with one page. ``problems`` lists events that no page may cause: dialogs, errors, refused content."""

    def __init__(self, binary: str) -> None:
        self.problems: list[str] = []
        self.requested: list[str] = []
        self.finished: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        self.downloads = Path(self._folder.name, "downloads")
        self.downloads.mkdir()
        flags = [
            "--headless=new",
            "--remote-debugging-port=0",
            f"--user-data-dir={self._folder.name}/profile",
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
        ]
        if getattr(os, "geteuid", lambda: 1)() == 0:
            flags.append("--no-sandbox")
        self._process = subprocess.Popen(
            [binary, *flags, "about:blank"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        try:
            self._run(self._connect())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the browser and delete its files."""
        if hasattr(self, "_http"):
            self._loop.run_until_complete(self._http.close())
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._loop.close()
        self._folder.cleanup()

    # --- the protocol ---

    def _run(self, coroutine: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(coroutine, 2 * _PATIENCE))

    async def _connect(self) -> None:
        assert self._process.stderr is not None
        while "DevTools listening on " not in (line := self._process.stderr.readline()):
            assert line, "Chromium did not start."
        self._http = aiohttp.ClientSession(trust_env=False)
        address = line.split(" on ")[1].strip()
        self._socket = await self._http.ws_connect(address, max_msg_size=0)
        self._number = 0
        self._session: str | None = None
        target = await self._send("Target.createTarget", url="about:blank")
        await self._attach(target["targetId"])
        await self._send(
            "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads), eventsEnabled=True
        )

    async def _attach(self, target: str) -> None:
        attached = await self._send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Security"):
            await self._send(f"{domain}.enable")

    async def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        await self._socket.send_json(message)
        while True:
            found = json.loads((await self._socket.receive()).data)
            if found.get("id") == number:
                assert "error" not in found, (method, found)
                result: dict[str, Any] = found["result"]
                return result
            await self._note(found)

    async def _note(self, event: dict[str, Any]) -> None:
        method, about = event.get("method", ""), event.get("params", {})
        if method == "Page.javascriptDialogOpening":
            self.problems.append(f"dialog: {about['message']}")
            await self._socket.send_json(
                {
                    "id": 0,
                    "method": "Page.handleJavaScriptDialog",
                    "params": {"accept": True},
                    "sessionId": self._session,
                }
            )
        elif method == "Runtime.exceptionThrown":
            self.problems.append(f"exception: {json.dumps(about['exceptionDetails'])[:500]}")
        elif method == "Log.entryAdded" and about["entry"]["source"] != "network":
            self.problems.append(f"log: {about['entry']['text'][:500]}")
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.problems.append(f"console: {about['args'][:2]}")
        elif method == "Network.requestWillBeSent":
            self.requested.append(about["request"]["url"])
        elif method == "Browser.downloadProgress" and about["state"] == "completed":
            self.finished.append(about["guid"])

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol and return its result."""
        result: dict[str, Any] = self._run(self._send(method, **parameters))
        return result

    # --- what a person does ---

    def go(self, address: str) -> None:
        """Open a URL as if it had been typed."""
        self.send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """Return the value of a script that runs in the page."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str) -> Any:
        """Wait until a script in the page returns a true value, and return it."""
        watch = f"""new Promise((done) => {{
          const began = Date.now();
          const look = () => {{
            let found;
            try {{ found = {script}; }} catch {{}}
            if (found || Date.now() - began > {_PATIENCE * 1000}) done(found instanceof Object || found);
            else setTimeout(look, 15);
          }};
          look();
        }})"""
        try:
            found = self.run(watch)
        except AssertionError as error:
            # Another document has come, with which the script has not begun.
            if "Inspected target navigated" not in str(error):
                raise
            found = self.run(watch)
        assert found, f"Never true: {script}; the page has: {self.run('document.body.innerText')[:2000]}"
        return found

    def find(self, selector: str, text: str | None = None, *, exact: bool = False) -> str:
        """Return the script that finds an element."""
        return f"({_FIND})({json.dumps(selector)}, {json.dumps(text)}, {json.dumps(exact)})"

    def see(self, selector: str, text: str | None = None) -> str:
        """Wait for a visible element and return its text."""
        found: str = self.wait(f"(({self.find(selector, text)}) || {{}}).textContent || ''")
        return found

    def click(self, selector: str, text: str | None = None, *, exact: bool = False, modifiers: int = 0) -> None:
        """Click in the middle of an element once it is visible, with ``modifiers`` such as ``CTRL``."""
        element = self.find(selector, text, exact=exact)
        self.wait(f"!!{element}")
        self.run(
            f"new Promise((done) => {{ {element}.scrollIntoView({{block: 'nearest', inline: 'nearest'}}); "
            "requestAnimationFrame(() => requestAnimationFrame(() => done(true))); })"
        )
        box = self.run(
            f"(() => {{ const box = {element}.getBoundingClientRect(); "
            "return [box.left + Math.min(box.width / 2, 60), box.top + Math.min(box.height / 2, 20)]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            where = {"x": box[0], "y": box[1], "modifiers": modifiers}
            self.send("Input.dispatchMouseEvent", type=kind, **where, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Type text into the focused element."""
        self.send("Input.insertText", text=text)

    def press(self, *keys: str, modifiers: int = 0) -> None:
        """Press keys one after another, with ``modifiers`` such as ``CTRL``."""
        for key in keys:
            code, text = _KEYS.get(key, (ord(key[0].upper()), key))
            known = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
            self.send("Input.dispatchKeyEvent", type="keyDown", **known, **({"text": text} if text else {}))
            self.send("Input.dispatchKeyEvent", type="keyUp", **known)

    def take(self, begin: Callable[[], None]) -> Path:
        """Call ``begin``, wait for the download that it starts, and return the downloaded file."""
        before = len(self.finished)
        begin()
        while len(self.finished) == before:
            # Events are only received while a command waits for its response.
            self.run("new Promise((done) => setTimeout(done, 20))")
        return max(self.downloads.iterdir(), key=lambda path: path.stat().st_mtime_ns)

    @contextlib.contextmanager
    def in_new_tab(self, begin: Callable[[], object]) -> Iterator[None]:
        """Call ``begin``, and use the tab that it opens during the ``with`` block."""
        before, first = self._tabs(), self._session
        begin()
        while not (new := self._tabs() - before):
            self.run("new Promise((done) => setTimeout(done, 20))")
        (target,) = new
        self._run(self._attach(target))
        try:
            yield
        finally:
            self._session = first
            self.send("Target.closeTarget", targetId=target)

    def _tabs(self) -> set[str]:
        targets = self.send("Target.getTargets")["targetInfos"]
        return {one["targetId"] for one in targets if one["type"] == "page"}

    # --- appearance ---

    def look_like(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window size and the preferred color scheme."""
        is_phone = width < 700
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        """Write the visible page as a PNG file."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

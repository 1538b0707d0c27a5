"""A client that sends the requests of the page of ``delta-sharing browse`` without a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import requests

from tests.time_limits import HANGS, Stopwatch


class Visitor:
    """Opens the URL, which gives it the cookie and the key, and sends requests."""

    def __init__(self, address: str) -> None:
        self.base = address.partition("/?")[0]
        self.http = requests.Session()
        self.http.trust_env = False
        self.opened = self.http.get(address, allow_redirects=False, timeout=HANGS)
        self.key = self.opened.headers.get("location", "").partition("#key=")[2]
        self.headers = {
            "Origin": self.base,
            "Content-Type": "application/json",
            "X-Delta-Sharing-Key": self.key,
        }

    def answer(self, question: str, values: dict[str, Any]) -> requests.Response:
        """Return the response to a request."""
        return self.http.post(
            f"{self.base}/api/{question}", data=json.dumps(values), headers=self.headers, timeout=HANGS
        )

    def ask(self, question: str, **values: Any) -> dict[str, Any]:
        """Return the result of a request that must succeed."""
        response = self.answer(question, values)
        result: dict[str, Any] = response.json()
        assert response.status_code == 200, result
        return result

    def refusal(self, question: str, **values: Any) -> dict[str, Any]:
        """Return the error of a request that must fail."""
        response = self.answer(question, values)
        assert response.status_code == 400, response.text
        result: dict[str, Any] = response.json()
        return result

    def preview(self, **values: Any) -> dict[str, Any]:
        """Plan and then read the first rows, as the page does; return both results."""
        plan = self.ask("plan", **values)
        return plan | self.ask("preview", plan=plan["plan"])

    def until(self, progress: dict[str, Any], is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Poll the progress of a download until ``is_it`` is true."""
        clock = Stopwatch()
        while not is_it(progress):
            assert clock.within(HANGS), progress
            progress = self.ask("progress", id=progress["id"])
        return progress

    def downloaded(self, question: str = "download", **values: Any) -> requests.Response:
        """Return the response with the file of a download, once the file is complete."""
        result = self.until(self.ask(question, **values), lambda one: one["state"] != "running")
        assert result["state"] == "ready", result
        # The request has a range, which the server must ignore, because a partial file would look complete.
        return self.http.get(f"{self.base}/files/{result['file']}", headers={"Range": "bytes=0-1"}, timeout=HANGS)

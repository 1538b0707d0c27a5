"""The report of a run: one result for each check, as text, JSON, JUnit XML or HTML."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import html
import json
import re
import textwrap
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from delta_sharing_client import __version__
from delta_sharing_client.checks.check import Check, Level, Outcome

# What XML 1.0 allows in no form, section 2.2.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of one check.

    ``reason`` says what was found, or what a share would need for the check; it is empty if the requirement holds.
    ``exchange`` is the request and response that broke it, with secrets masked.
    """

    check: Check
    outcome: Outcome
    reason: str = ""
    exchange: str = ""


@dataclasses.dataclass(frozen=True)
class ConformanceReport:
    """The results of all checks of a run, in the order of levels. ``endpoint`` is the server; ``time`` is in UTC."""

    endpoint: str
    results: tuple[Result, ...]
    time: dt.datetime

    @property
    def failed(self) -> tuple[Result, ...]:
        """The results of the requirements that the server breaks."""
        return tuple(result for result in self.results if result.outcome is Outcome.FAILS)

    def levels(self) -> dict[str, str]:
        """Return for each level that was checked ``held`` (each check holds), ``held as far as testable``, ``not
        held``, ``not offered``, or ``not testable``."""
        return {level.text: _claim(outcomes) for level, outcomes in self._by_level()}

    def to_text(self) -> str:
        """Return the report for a terminal."""
        lines = [f"{self.endpoint}, {self.time:%Y-%m-%d %H:%M} UTC, delta-sharing-client {__version__}", ""]
        for level, outcomes in self._by_level():
            counts = collections.Counter(outcome.value for outcome in outcomes)
            told = ", ".join(
                f"{counts[one.value]} {_verb(one, counts[one.value])}" for one in Outcome if counts[one.value]
            )
            lines.append(f"{level.text:<20} {_claim(outcomes):<24} {told}")
        for result in self.failed:
            lines += ["", f"FAILS  {result.check.id}", f"  {result.check.statement}", f"  ({result.check.source})"]
            lines += [f"  {result.reason}", *(f"    {line}" for line in result.exchange.splitlines())]
        for outcome in (Outcome.NOT_OFFERED, Outcome.NOT_TESTABLE):
            # Often all checks of a level have one reason.
            ids: dict[str, list[str]] = {}
            for result in self.results:
                if result.outcome is outcome:
                    ids.setdefault(result.reason, []).append(result.check.id)
            for reason, named in ids.items():
                lines += ["", f"{outcome.value.upper()}  {reason}"]
                lines += _IDS.wrap(", ".join(named))
        failed = len(self.failed)
        told = f"{failed} of {len(self.results)} checks {_verb(Outcome.FAILS, failed)}" if failed else "No check fails"
        return "\n".join([*lines, "", f"{told}.", ""])

    def to_json(self) -> str:
        """Return the report as a JSON object with ``endpoint``, ``time``, ``version``, ``levels`` and ``checks``."""
        return json.dumps(
            {
                "endpoint": self.endpoint,
                "time": self.time.isoformat(),
                "version": __version__,
                "levels": self.levels(),
                "checks": [
                    {
                        "id": result.check.id,
                        "level": result.check.level.text,
                        "statement": result.check.statement,
                        "source": result.check.source,
                        "outcome": result.outcome.value,
                        **({"reason": result.reason} if result.reason else {}),
                        **({"exchange": result.exchange} if result.exchange else {}),
                    }
                    for result in self.results
                ],
            },
            indent=2,
        )

    def to_junit(self) -> str:
        """Return the report as JUnit XML: a suite for each level, in which what is not testable is skipped."""
        root = ElementTree.Element("testsuites", name=f"conformance of {self.endpoint}")
        for level, outcomes in self._by_level():
            skipped = sum(one in (Outcome.NOT_OFFERED, Outcome.NOT_TESTABLE) for one in outcomes)
            suite = ElementTree.SubElement(
                root,
                "testsuite",
                name=level.text,
                tests=str(len(outcomes)),
                failures=str(outcomes.count(Outcome.FAILS)),
                skipped=str(skipped),
            )
            for result in self.results:
                if result.check.level is not level:
                    continue
                case = ElementTree.SubElement(suite, "testcase", classname=level.text, name=result.check.id)
                if result.outcome is Outcome.FAILS:
                    failure = ElementTree.SubElement(case, "failure", message=result.reason)
                    failure.text = f"{result.check.statement}\n{result.check.source}\n{result.exchange}"
                elif result.outcome is not Outcome.HOLDS:
                    ElementTree.SubElement(case, "skipped", message=f"{result.outcome.value}: {result.reason}")
        ElementTree.indent(root)
        return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", ElementTree.tostring(root, encoding="unicode")) + "\n"

    def to_html(self) -> str:
        """Return the report as one HTML page, which loads nothing."""
        rows = "".join(
            f'<tr class="{result.outcome.name.lower()}"><td>{result.outcome.value}<td><code>{result.check.id}</code>'
            f"<td>{html.escape(result.check.statement)}<br><small>{html.escape(result.check.source)}</small>"
            f"<td>{html.escape(result.reason)}"
            + (f"<pre>{html.escape(result.exchange)}</pre>" if result.exchange else "")
            for result in self.results
        )
        levels = "".join(f"<li>{level}: {claim}" for level, claim in self.levels().items())
        return _PAGE.format(
            endpoint=html.escape(self.endpoint), time=f"{self.time:%Y-%m-%d %H:%M}", levels=levels, rows=rows,
            version=__version__,
        )  # fmt: skip

    def _by_level(self) -> Iterator[tuple[Level, list[Outcome]]]:
        for level in Level:
            outcomes = [result.outcome for result in self.results if result.check.level is level]
            if outcomes:
                yield level, outcomes


def _verb(outcome: Outcome, count: int) -> str:
    return outcome.value.removesuffix("s") if count > 1 else outcome.value


def _claim(outcomes: list[Outcome]) -> str:
    if Outcome.FAILS in outcomes:
        return "not held"
    if set(outcomes) == {Outcome.HOLDS}:
        return "held"
    if Outcome.HOLDS in outcomes:
        return "held as far as testable"
    return "not testable" if Outcome.NOT_TESTABLE in outcomes else "not offered"


_IDS = textwrap.TextWrapper(110, "  ", "  ", break_long_words=False, break_on_hyphens=False)
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Conformance of {endpoint}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; vertical-align: top; padding: .4rem .6rem; border-top: 1px solid #8884 }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85em }}
.fails td:first-child {{ color: light-dark(#b00020, #ff8a80); font-weight: bold }}
.holds td:first-child {{ color: light-dark(#1b6e2b, #81c995) }}
</style>
<h1>Conformance of {endpoint}</h1>
<p>{time} UTC, delta-sharing-client {version}</p>
<ul>{levels}</ul>
<table><thead><tr><th>Outcome<th>Check<th>Requirement<th>Found</thead><tbody>{rows}</tbody></table>
</html>
"""

"""The sentences of the protocols that bind a client or a server: ``python -m tools.sentences PROTOCOL.md``,
with OpenSharing's TABLES.md, or with its OVERVIEW.md, VOLUMES.md, AGENT_SKILLS.md, ML_MODELS.md and CREDENTIALS.md.

The texts are not copied here. ``sentences.md`` (Delta Sharing) and ``open_sharing*.md`` identify each sentence by
section, number and hash, and add who is bound, a short summary, and the tests that fail if the sentence is not
followed (``check:ID`` is a check of the conformance kit). The program compares texts and tables, and lists changed
sections and new or removed sentences. ``--write`` updates numbers and hashes, and leaves the summary of a new
sentence empty; ``test_sentences.py`` fails until the summary is written.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_DIRECTORY = Path(__file__).resolve().parents[1] / "tests" / "protocol"
_BINDING = r"must|should|shouldn t|cannot|guaranteed|mutually exclusive|keep polling|opaque|unique string"
_BINDING_OF_TABLES = (
    r"only|required|advised|insensitive|immutable|max|not allowed|additionally|is optional|resolve an alias"
    r"|are returned|not be returned|returned by"
)
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\[(])|\s*\|\s*|</?(?:br|td|th|tr|table)\b[^>]*>|\s-\s(?=[A-Z])")
ROW = re.compile(r"^\| (?P<section>[^|]+) \| (?P<number>\d+) \| `(?P<hash>\w{12})` \| (?P<rest>.*) \|$")


@dataclasses.dataclass(frozen=True)
class Protocol:
    """A protocol: our table of its sentences, the names of its texts, the repository of the texts, the environment
    variable with their location, and the words that make a sentence binding."""

    table: Path
    texts: tuple[str, ...]
    home: str
    variable: str
    binding: re.Pattern[str]


DELTA_SHARING = Protocol(
    _DIRECTORY / "sentences.md",
    ("PROTOCOL.md",),
    "delta-io/delta-sharing",
    "DELTA_SHARING_PROTOCOL",
    re.compile(rf"\b({_BINDING})\b"),
)
# Many requirements in these texts are table cells without a verb, so more words count as binding.
OPEN_SHARING = Protocol(
    _DIRECTORY / "open_sharing.md",
    ("OVERVIEW.md", "VOLUMES.md", "AGENT_SKILLS.md", "ML_MODELS.md", "CREDENTIALS.md"),
    "littlegrasscao/OpenSharing",
    "OPEN_SHARING_PROTOCOL",
    re.compile(rf"\b({_BINDING}|{_BINDING_OF_TABLES})\b"),
)
# The text about tables is in a different repository than the others, and repeats a part of the Delta Sharing protocol.
OPEN_SHARING_TABLES = Protocol(
    _DIRECTORY / "open_sharing_tables.md",
    ("TABLES.md",),
    "OpenSharing-IO/OpenSharing",
    "OPEN_SHARING_TABLES",
    re.compile(
        rf"\b({_BINDING}|{_BINDING_OF_TABLES}|tables are supported|apis supported|supported formats|supported values)\b"
    ),
)
PROTOCOLS = (DELTA_SHARING, OPEN_SHARING, OPEN_SHARING_TABLES)


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence of a text. ``words`` is its normal form: in lower case, with only letters and digits."""

    section: str
    number: int
    words: str

    @property
    def hash(self) -> str:
        return digest(self.words)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def normal(text: str) -> str:
    """Return a text in lower case without markup, link targets and punctuation, so that only changes of the wording
    count."""
    return " ".join(re.findall(r"[a-z0-9]+", re.sub(r"\]\([^)]*\)", "]", text).lower()))


def sentences(text: str) -> list[Sentence]:
    """Return the sentences of a Markdown text, numbered within their sections; code is omitted."""
    results: list[Sentence] = []
    section, number = "", 0
    for heading, paragraph in _paragraphs(text):
        if heading != section:
            section, number = heading, 0
        for part in _END.split(paragraph):
            if words := normal(part):
                number += 1
                results.append(Sentence(section, number, words))
    return results


def _paragraphs(text: str) -> Iterator[tuple[str, str]]:
    section, lines, in_code = "", [], False
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        heading = None if in_code else re.match(r"#+\s+(.*)", stripped)
        if stripped.startswith("```"):
            in_code = not in_code
        elif in_code:
            continue
        elif stripped and heading is None and not stripped.startswith(("|", "- ", "* ", "<")):
            lines.append(stripped)
            continue
        if lines:
            yield section, " ".join(lines)
            lines = []
        if heading is not None:
            section = heading[1].strip()
        elif stripped and not stripped.startswith("```"):
            lines.append(stripped.lstrip("-* "))


def all_sentences(texts: Mapping[str, str]) -> list[Sentence]:
    """Return the sentences of all texts; if there are several texts, each section begins with the name of its text."""
    if len(texts) == 1:
        return sentences(*texts.values())
    result = ((Path(name).stem, sentence) for name, text in texts.items() for sentence in sentences(text))
    return [dataclasses.replace(one, section=f"{stem}: {one.section or '(none)'}") for stem, one in result]


def binding(texts: Mapping[str, str], protocol: Protocol = DELTA_SHARING) -> dict[str, Sentence]:
    """Return the binding sentences by hash; a repeated sentence has the position of its first occurrence."""
    results: dict[str, Sentence] = {}
    for sentence in all_sentences(texts):
        if protocol.binding.search(sentence.words):
            results.setdefault(sentence.hash, sentence)
    return results


def section_digests(texts: Mapping[str, str]) -> dict[str, tuple[int, str]]:
    """Return, for each section, the number of its sentences and a digest of them."""
    words: dict[str, list[str]] = {}
    for sentence in all_sentences(texts):
        words.setdefault(sentence.section, []).append(sentence.words)
    return {section: (len(parts), digest("\n".join(parts))) for section, parts in words.items()}


def rows(table: str) -> dict[str, str]:
    """Return, by the hash of each sentence, its last three columns in a table: who, requirement, tests."""
    matches = [match for line in table.splitlines() if (match := ROW.match(line)) is not None]
    return {match["hash"]: match["rest"] for match in matches}


def edition_of(table: str, protocol: Protocol = DELTA_SHARING) -> str:
    """Return the edition of the text from which a table was made."""
    return str(re.findall(rf"{re.escape(protocol.home)}, (.*): each", table)[0])


def written(texts: Mapping[str, str], known: dict[str, str], edition: str, protocol: Protocol = DELTA_SHARING) -> str:
    """Return the table for ``texts``; ``known`` has the last three columns of sentences by hash."""
    names = ", ".join(texts)
    lines = [
        "# What the protocol requires, and which tests check it",
        "",
        f"Made by `python -m tools.sentences` from {names} of {protocol.home}, {edition}: each",
        "sentence that binds a client or a server, with its section, its number there and the hash of its words.",
        "The columns after them state the requirement in our words and name its tests. `test_sentences.py` checks that",
        f"the tests exist and, if the text is available (`{protocol.variable}`), that no sentence is missing.",
        "",
        "| section | number | hash | who | requirement | tests |",
        "|---|---|---|---|---|---|",
    ]
    for key, sentence in binding(texts, protocol).items():
        lines.append(f"| {sentence.section} | {sentence.number} | `{key}` | {known.get(key, ' |  | ').strip()} |")
    lines += [
        "",
        "## All sections",
        "",
        "Every sentence counts here, so that a new edition shows which sections changed.",
        "",
        "| section | sentences | digest |",
        "|---|---|---|",
    ]
    lines += [f"| {name or '(none)'} | {count} | `{mark}` |" for name, (count, mark) in section_digests(texts).items()]
    return "\n".join(lines) + "\n"


def read(paths: Sequence[Path]) -> dict[str, str]:
    """Return the contents of files by file name."""
    return {path.name: path.read_text("utf-8") for path in paths}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help="bring the table up to date")
    parser.add_argument("--edition", help="the edition of the text: a commit and its date")
    given = parser.parse_args()
    texts = read(given.texts)
    protocol = next((one for one in PROTOCOLS if set(texts) == set(one.texts)), None)
    if protocol is None:
        parser.error(f"give all of {' or of '.join(', '.join(one.texts) for one in PROTOCOLS)}")
    table = protocol.table.read_text("utf-8") if protocol.table.exists() else ""
    known, result = rows(table), binding(texts, protocol)
    differences = [
        *(f"new: {one.section} {one.number} {key}: {one.words}" for key, one in result.items() if key not in known),
        *(f"gone: {key}: {rest}" for key, rest in known.items() if key not in result),
        *(
            f"changed: section {name!r}"
            for name, (count, mark) in section_digests(texts).items()
            if f"| {name or '(none)'} | {count} | `{mark}` |" not in table
        ),
    ]
    sys.stdout.writelines(f"{difference}\n" for difference in differences)
    if given.write:
        edition = given.edition or edition_of(table, protocol)
        protocol.table.write_text(written(texts, known, edition, protocol), "utf-8")
    elif differences:
        sys.exit(1)


if __name__ == "__main__":
    main()

"""Every message that a caller can see is a sentence; this is checked wherever the sources create an error."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from delta_sharing_client import errors

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path for package in ("delta_sharing_client", "mock_server") for path in (ROOT / package).rglob("*.py"))
OURS = {
    *(name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)),
    # Error classes of the server, and the functions that create them.
    "ApiError",
    "ConfigError",
    "data_lost",
    "invalid",
    "malformed",
    "not_found",
    "unsupported",
}
# A placeholder for inserted values, so that the sentence around them can be checked.
VALUE = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_messages_are_sentences(path: Path) -> None:
    wrong = [
        f"line {line}: {message.replace(VALUE, '{}')!r} {complaint}"
        for line, message in _messages(ast.parse(path.read_text()))
        if (complaint := _complaint(message)) is not None
    ]

    assert wrong == []


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ("The column 'a' is not in the table. Did you mean 'b'?", None),
        (f"'{VALUE}' is no version: a whole number was expected.", None),
        (f"{VALUE} Ask the provider for another profile.", None),
        ("no column 'a'.", "does not begin with a capital letter"),
        ("No column 'a'", "does not end with a full stop"),
        ('No column "a".', "names something in double quotation marks"),
    ],
)
def test_messages_that_are_not_sentences_are_found(message: str, complaint: str | None) -> None:
    assert _complaint(message) == complaint


def _complaint(message: str) -> str | None:
    first = message[:1]
    if not (first.isupper() or first.isdigit() or first in (VALUE, "'", "`")):
        return "does not begin with a capital letter"
    if not message.rstrip("')`").endswith((".", "?", VALUE)) or (message.endswith(VALUE) and not _is_whole(message)):
        return "does not end with a full stop"
    # Quotation marks in a shell command are allowed.
    if re.search(r'(?<!pip install )"[^"\s]+"', message):
        return "names something in double quotation marks"
    return None


def _is_whole(message: str) -> bool:
    """Whether the value at the end is a whole sentence that other code creates, as in ``{}`` or ``One sentence.
    {}``."""
    before = message[: -len(VALUE)].rstrip()
    return not before or before.endswith((".", "?", VALUE))


def _messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in OURS and (message := _text(node.args[0])) is not None:
            yield node.lineno, message


def _text(node: ast.expr) -> str | None:
    """Return a literal message with ``VALUE`` for inserted values, or ``None`` if the message is not a literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_text(side) for side in (node.left, node.right)]
        return "".join(VALUE if side is None else side for side in sides)
    return None

"""Reads YAML that a provider wrote, such as the front matter of a skill, in time and memory bounded by its size.

Only what such files need is understood: lists, and mappings whose keys differ. Scalars are text, as written, or values
of JSON, by the core schema of YAML 1.2; null and nothing are ``None``. Aliases and merge keys are refused, because a
few of them can stand for any amount of data, and so are tags that would create other objects.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

_LONGEST = 64 * 1024
# PyYAML's time grows with the square of the number of open brackets.
_MOST_BRACKETS = 1000
_DEEPEST = 50
_MOST_SHOWN = 200
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_TAG = re.compile(r"tag:yaml\.org,2002:(?:str|int|float|bool|null|timestamp|seq|map)")
_BOOLEANS = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_OLD_BREAKS = re.compile("[\x85\u2028\u2029]")
_BASES = {"0o": 8, "0x": 16}
# JavaScript writes larger integers with an exponent.
_MOST_EXACT = 2**53


class ProviderYamlError(ValueError):
    """The text is not YAML, or not of the kind that is read here. The message is a sentence without its end."""


def parse(text: str) -> Any:
    """Return the content of a YAML document; its scalars are text.

    Raises ``ProviderYamlError`` if it is not YAML, is longer than 64 KiB, is nested deeper than 50 levels, or has an
    alias, a merge key, a tag or the same key twice.
    """
    return _loaded(text, _Loader)


def parse_json(text: str) -> Any:
    """Return the content of a YAML document as a JSON value, by the core schema of YAML 1.2: a date is text.

    Raises ``ProviderYamlError`` as ``parse`` does, and for a scalar with a tag, a number that JSON does not have, a key
    that is no text, a line break of YAML 1.1 only, and half of a surrogate pair.
    """
    if found := _OLD_BREAKS.search(text):
        # PyYAML would read it as the end of a line.
        raise ProviderYamlError(f"it has the character U+{ord(found[0]):04X}")
    return _loaded(text, _JsonLoader)


def _loaded(text: str, loader: type[_Loader]) -> Any:
    if len(text) > _LONGEST:
        raise ProviderYamlError(f"it has {len(text):,} characters, more than {_LONGEST:,}")
    if len(re.findall(r"[\[{]", text)) > _MOST_BRACKETS:
        raise ProviderYamlError(f"it has more than {_MOST_BRACKETS:,} opening brackets")
    try:
        return yaml.load(text, Loader=loader)
    except (yaml.YAMLError, ValueError) as error:
        raise ProviderYamlError(" ".join(str(error).split())[:_MOST_SHOWN]) from None
    except RecursionError:
        raise ProviderYamlError("it is nested too deep") from None


# Its base keeps scalars as text and creates no objects.
class _Loader(yaml.BaseLoader):
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise ProviderYamlError(f"it has the alias '*{event.anchor}'")
        tag = getattr(event, "tag", None)
        if tag not in (None, "!") and _TAG.fullmatch(tag) is None:
            raise ProviderYamlError(f"it has the tag '{tag}'")
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ProviderYamlError(f"it is nested deeper than {_DEEPEST} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_scalar(self, node: Any) -> Any:
        text: str = super().construct_scalar(node)
        return None if node.style is None and text in _NULLS else text

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        plain = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.style is None]
        if "<<" in plain:
            raise ProviderYamlError("it has a merge key '<<'")
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(node.value):
            raise ProviderYamlError("a mapping in it has the same key twice")
        return mapping


class _JsonLoader(_Loader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._names: set[Any] = set()

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.ScalarEvent) and event.tag not in (None, "!"):
            raise ProviderYamlError(f"it has the tag '{event.tag}'")
        return super().compose_node(parent, index)

    def construct_scalar(self, node: Any) -> Any:
        node.value = _unicode(node.value)
        text = super().construct_scalar(node)
        value = text if node.style is not None or text is None else _json_value(text)
        return _json_name(value, node.value) if node in self._names else value

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        self._names.update(key for key, _ in node.value)
        return super().construct_mapping(node, deep=deep)


def _json_value(text: str) -> Any:
    """Return the value of a plain scalar (YAML 1.2, "Core Schema")."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text[2:], _BASES[text[:2]]) if text[:2] in _BASES else int(text)
    if not _FLOAT.fullmatch(text):
        return text
    number = math.inf if text[-1] in "fFnN" else float(text)
    if math.isinf(number):
        raise ProviderYamlError(f"it has the number {text[:_MOST_SHOWN]}, which JSON does not have")
    return number


def _json_name(value: Any, text: str) -> str:
    """Return the name in a JSON object for a key, which is the same for all libraries."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) <= _MOST_EXACT:
        return str(value)
    if not isinstance(value, str):
        raise ProviderYamlError(f"it has the key '{text[:_MOST_SHOWN]}', which is no text")
    return value


def _unicode(text: str) -> str:
    """Return text in which escapes of surrogate pairs, as JSON writes them, are characters."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ProviderYamlError("it has half of a surrogate pair, which is no character") from None

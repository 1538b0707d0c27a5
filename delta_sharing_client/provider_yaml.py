"""Reads YAML that a provider wrote, such as the front matter of a skill, in time and memory bounded by its size.

Only what such files need is understood: lists, and mappings whose keys differ. Scalars are text, as written; null and
nothing are ``None``. Aliases and merge keys are refused, because a few of them can stand for any amount of data, and so
are tags that would create other objects.
"""

from __future__ import annotations

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


class ProviderYamlError(ValueError):
    """The text is not YAML, or not of the kind that is read here. The message is a sentence without its end."""


def parse(text: str) -> Any:
    """Return the content of a YAML document.

    Raises ``ProviderYamlError`` if it is not YAML, is longer than 64 KiB, is nested deeper than 50 levels, or has an
    alias, a merge key, a tag or the same key twice.
    """
    if len(text) > _LONGEST:
        raise ProviderYamlError(f"it has {len(text):,} characters, more than {_LONGEST:,}")
    if len(re.findall(r"[\[{]", text)) > _MOST_BRACKETS:
        raise ProviderYamlError(f"it has more than {_MOST_BRACKETS:,} opening brackets")
    try:
        return yaml.load(text, Loader=_Loader)
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

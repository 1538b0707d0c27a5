"""The options for reading the files of a volume, a skill or a version of a model."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from delta_sharing_client.assets.directory import checked_path, matcher
from delta_sharing_client.assets.files import FileAsset
from delta_sharing_client.errors import UsageError
from delta_sharing_client.spark.option_values import (
    Option,
    by_name,
    invalid,
    parse_count,
    parse_flag,
    parse_given,
    parse_text,
    parse_timestamp,
    parser_of,
)

_ALTERNATIVES = re.compile(r"\{([^{}]*)\}")
_MOST_PATTERNS = 1000


class AssetNoun(enum.Enum):
    """A kind of asset that has files."""

    VOLUME = "volume"
    SKILL = "skill"
    MODEL = "model"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """Which files of an asset are read.

    ``folder`` is a path in the asset; ``pattern``, ``exclude`` and ``recursive`` are as in ``FileAsset.files``.
    ``modified_after`` and ``modified_before`` are exclusive bounds in ISO 8601. ``model_version`` or ``model_alias``
    chooses the version of a model.
    """

    asset: AssetNoun
    folder: str = ""
    pattern: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    recursive: bool = True
    modified_after: str | None = None
    modified_before: str | None = None
    model_version: int | None = None
    model_alias: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str], folder: str) -> FileOptions | None:
        """Return the options for files among the ``given``, whose names are in lower case; ``None`` for a table.

        Raises ``UsageError`` for a wrong value or combination.
        """
        found = parse_given(OPTIONS, given)
        if "asset" not in found:
            for key in OPTIONS:
                if key in given:
                    raise UsageError(
                        f"Option '{OPTIONS[key].name}' is for files: add option 'asset' with the value 'volume', "
                        "'skill' or 'model'."
                    )
            return None
        for name in _OF_TABLES:
            if name.lower() in given and given[name.lower()].lower() != "false":
                raise UsageError(f"Option '{name}' is for tables; leave it out, or leave out option 'asset'.")
        result = cls(folder=folder, **found)
        chosen = [name for name in ("modelVersion", "modelAlias") if name.lower() in given]
        if len(chosen) != (result.asset is AssetNoun.MODEL):
            raise UsageError(
                "A model needs option 'modelVersion' or option 'modelAlias', and only one of them; other assets need "
                f"neither. Found {' and '.join(map(repr, chosen)) or 'none of them'}."
            )
        matcher(result.pattern, result.exclude)
        return result

    @classmethod
    def of(
        cls,
        asset: FileAsset,
        path: str,
        pattern: str | Sequence[str] | None,
        exclude: str | Sequence[str],
        recursive: bool,
    ) -> FileOptions:
        """Return the options for ``asset.files(path, pattern, exclude=exclude, recursive=recursive)``.

        Raises ``UsageError`` for a malformed path or pattern.
        """
        matcher(pattern, exclude)
        noun = AssetNoun.MODEL if asset._ref.version is not None else AssetNoun(asset._kind.noun)
        return cls(
            asset=noun,
            folder=checked_path(path, asset._ref),
            pattern=None if pattern is None else _several(pattern),
            exclude=_several(exclude),
            recursive=recursive,
            model_version=asset._ref.version,
        )

    def texts(self) -> dict[str, object]:
        """Return the options of the data source that ``parse`` reads as ``self``."""
        return {
            "asset": self.asset.value,
            "pathGlobFilter": None if self.pattern is None else json.dumps(self.pattern),
            "pathGlobExclude": json.dumps(self.exclude) if self.exclude else None,
            "recursiveFileLookup": "true" if self.recursive else "false",
            "modelVersion": self.model_version,
        }


def _several(patterns: str | Sequence[str]) -> tuple[str, ...]:
    return (patterns,) if isinstance(patterns, str) else tuple(patterns)


def _parse_patterns(name: str, value: str) -> tuple[str, ...]:
    """Parse one pattern, in which ``{a,b}`` are alternatives, as in Spark; or a JSON array of patterns without them."""
    if not value.lstrip().startswith('["'):
        found = tuple(_alternatives(parse_text(name, value)))
    else:
        try:
            found = msgspec.json.decode(value, type=tuple[str, ...])
        except msgspec.DecodeError:
            raise invalid(name, value, "a pattern such as '*.{png,jpg}', or a JSON array of patterns") from None
    return found


def _alternatives(pattern: str) -> Iterator[str]:
    waiting, count = [pattern], 0
    while waiting:
        one = waiting.pop()
        match = _ALTERNATIVES.search(one)
        if match is None:
            yield one
        else:
            waiting += [one[: match.start()] + text + one[match.end() :] for text in reversed(match[1].split(","))]
        count += 1
        if count > _MOST_PATTERNS:
            raise UsageError(f"Expected a pattern with at most {_MOST_PATTERNS} alternatives, found {pattern[:80]!r}.")


OPTIONS = by_name(
    Option("asset", "asset", parser_of(AssetNoun)),
    Option("pathGlobFilter", "pattern", _parse_patterns),
    Option("pathGlobExclude", "exclude", _parse_patterns),
    Option("recursiveFileLookup", "recursive", parse_flag),
    Option("modifiedAfter", "modified_after", parse_timestamp),
    Option("modifiedBefore", "modified_before", parse_timestamp),
    Option("modelVersion", "model_version", parse_count),
    Option("modelAlias", "model_alias", parse_text),
)
# Options that determine which rows of a table are read, and in which form.
_OF_TABLES = (
    *("versionAsOf", "timestampAsOf", "rowLineage", "responseFormat"),
    *("readChangeFeed", "readChangeData", "changeFeedColumns"),
    *("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp"),
)

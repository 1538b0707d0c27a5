"""List table features that other engines have and this client does not know: ``python -m tools.features FILE
...``.

Each file is the source file in which an engine declares its features: ``TableFeature.scala`` of Delta Lake for
Spark, ``TableFeatures.java`` of Delta Kernel, ``table_features/mod.rs`` of delta-kernel-rs. The program prints each
feature that ``delta_sharing_client/delta/features.py`` lacks or has as another kind, and exits with 1 if there is
one. It compares the engines' names, including preview names and aliases.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from delta_sharing_client.delta.features import FeatureKind, find_feature

Declared = tuple[str, "FeatureKind | None"]
"""The name of a feature, and its kind where the declaration shows it."""

_KINDS = {"ReaderWriterFeature": FeatureKind.READER_WRITER, "WriterFeature": FeatureKind.WRITER}
# Scala: the name is an argument of the base class, as in extends ReaderWriterFeature(name = "x"); there may be a class
# in between.
_SCALA = re.compile(r'extends\s+(\w+)\(\s*(?:name\s*=\s*)?"([\w-]+)"')
_SCALA_BASE = re.compile(r"class\s+(\w+)\s*\([^)]*\)\s*(?:\{\s*)?extends\s+(\w+)")
# Java: the name is in super("x", ...) in a class that extends TableFeature.ReaderWriterFeature, or in new X("x").
_JAVA_BASE = re.compile(r"class\s+(\w+)\s+extends\s+(?:TableFeature\.)?(\w+)")
_JAVA = re.compile(r'class\s+(\w+)|super\(\s*(?:/\*[^*]*\*/\s*)?"([\w-]+)"|new\s+(\w+Feature\w*)\(\s*"([\w-]+)"')
# Rust: the features are the variants of an enum, with names in camel case unless an attribute gives another name.
_RUST_ENUM = re.compile(r"enum\s+TableFeature\s*\{(.*?)\n\}", re.DOTALL)
_RUST = re.compile(r'(?:serialize|to_string|rename|alias)\s*=\s*"([\w-]+)"|^\s*([A-Z]\w*)\s*,', re.MULTILINE)


def declared(text: str, language: str) -> list[Declared]:
    """Return the features that ``text`` declares; ``language`` is ``scala``, ``java`` or ``rs``."""
    result = {"scala": _scala, "java": _java, "rs": _rust}[language](text)
    # Spark also declares features for its own tests.
    return [(name, kind) for name, kind in dict(result).items() if not name.lower().startswith("test")]


def _scala(text: str) -> Iterator[Declared]:
    bases = dict(_SCALA_BASE.findall(text))
    for base, name in _SCALA.findall(text):
        yield name, _kind(base, bases)


def _java(text: str) -> Iterator[Declared]:
    bases = dict(_JAVA_BASE.findall(text))
    current = ""
    for class_name, own, created, named in _JAVA.findall(text):
        current = class_name or current
        if own or named:
            yield own or named, _kind(created or current, bases)


def _rust(text: str) -> Iterator[Declared]:
    body = _RUST_ENUM.search(text)
    named = False
    for match in _RUST.finditer("" if body is None else body[1]):
        if match[1]:
            named = True
            yield match[1], None
        elif not named:
            yield match[2][0].lower() + match[2][1:], None
        else:
            named = False


def _kind(base: str, bases: dict[str, str]) -> FeatureKind | None:
    while base.removeprefix("Legacy") not in _KINDS and base in bases:
        base = bases[base]
    return _KINDS.get(base.removeprefix("Legacy"))


def missing(features: list[Declared]) -> list[str]:
    """Return a line for each feature that we lack, or that has a different kind in our list."""
    differences = []
    for name, kind in features:
        ours = find_feature(name)
        if ours is None:
            differences.append(f"{name}: not in our list" + ("" if kind is None else f" ({kind.value})"))
        elif kind is not None and ours.kind is not kind:
            differences.append(f"{name}: {kind.value}, in our list {ours.kind.value}")
    return differences


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="ends in .scala, .java or .rs")
    wrong = 0
    for path in parser.parse_args().files:
        features = declared(path.read_text(encoding="utf-8"), path.suffix[1:])
        if not features:
            parser.error(f"{path} declares no features.")
        differences = missing(features)
        wrong += len(differences)
        lines = [
            f"{path.name}: {len(features)} features, {len(differences)} to check",
            *(f"  {line}" for line in differences),
        ]
        sys.stdout.write("\n".join(lines) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

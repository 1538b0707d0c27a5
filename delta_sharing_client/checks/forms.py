"""The forms of responses, from the OpenAPI description of the protocols in ``openapi.yaml``."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from delta_sharing_client import optional
from delta_sharing_client.redact import scrub_json

_BASE = "urn:delta-sharing"


def load() -> None:
    """Import what the forms need. Raises ``UsageError`` if the extra ``conformance`` is not installed."""
    optional.load("jsonschema", "conformance")
    description()


@functools.cache
def description(*, strict: bool = False) -> Any:
    """Return the OpenAPI description, in which each reference is absolute.

    It allows unknown fields, because specifications and servers add some; with ``strict``, it does not.
    """
    yaml = optional.load("yaml", "conformance")
    text = (Path(__file__).parent / "openapi.yaml").read_text("utf-8").replace('"#/', f'"{_BASE}#/')
    content = yaml.safe_load(text)
    return content if strict else _open(content)


def validator(schema: Any, *, strict: bool = False) -> Any:
    """Return a ``jsonschema`` validator for a schema, which may refer to the description."""
    jsonschema, referencing = optional.load("jsonschema", "conformance"), optional.load("referencing", "conformance")
    draft = optional.load("referencing.jsonschema", "conformance").DRAFT202012
    registry = referencing.Registry().with_resource(_BASE, draft.create_resource(description(strict=strict)))
    return jsonschema.Draft202012Validator(schema, registry=registry)


@functools.cache
def form(name: str, *, strict: bool = False) -> Any:
    """Return the validator for the schema called ``name`` in the description."""
    return validator({"$ref": f"{_BASE}#/components/schemas/{name}"}, strict=strict)


def problem(document: object, name: str, counts: Callable[[str, str], bool] = lambda field, rule: True) -> str | None:
    """Return how ``document`` differs from the schema called ``name``, as one sentence; ``None`` if it does not.

    Only those differences count for which ``counts`` is true, by the name of the field and the keyword of JSON Schema.
    """
    errors = (
        error
        for error in form(name).iter_errors(document)
        if counts(next((part for part in reversed(error.path) if isinstance(part, str)), ""), error.validator)
    )
    error = optional.load("jsonschema", "conformance").exceptions.best_match(errors)
    if error is None:
        return None
    place = error.json_path.removeprefix("$").removeprefix(".")
    # The message of the library contains the value, which may be a whole document.
    if error.validator == "required":
        missing = [field for field in error.validator_value if field not in error.instance]
        return f"Expected {', '.join(missing)} in {place or 'the document'}, found none."
    # Masked before it is cut, so that no part of a secret is left.
    name = json.dumps(next((part for part in reversed(error.path) if isinstance(part, str)), "")) + ": "
    value = scrub_json(name + json.dumps(error.instance)).removeprefix(name)
    shown = value if len(value) <= 80 else f"{value[:80]}..."
    return f"Expected {_expected(error)} as {place or 'the document'}, found {shown}."


_TYPES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "an array",
    "null": "null",
}
_RULES: dict[str, Callable[[Any], str]] = {
    "type": lambda types: " or ".join(_TYPES[name] for name in ([types] if isinstance(types, str) else types)),
    "const": json.dumps,
    "enum": lambda values: f"one of {', '.join(map(json.dumps, values))}",
    "pattern": lambda pattern: f"text like {pattern}",
    "minLength": lambda least: f"at least {least} characters",
    "maxLength": lambda most: f"at most {most} characters",
    "minimum": lambda least: f"a number of at least {least}",
    "maximum": lambda most: f"a number of at most {most}",
}


def _expected(error: Any) -> str:
    if (told := _RULES.get(error.validator)) is not None:
        return told(error.validator_value)
    return f"{error.validator} {json.dumps(error.validator_value)[:120]}"


def _open(part: Any) -> Any:
    if isinstance(part, dict):
        kept = {name: _open(value) for name, value in part.items()}
        if kept.get("additionalProperties") is False:
            del kept["additionalProperties"]
        return kept
    return [_open(each) for each in part] if isinstance(part, list) else part

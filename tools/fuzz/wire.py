"""Feed malformed responses, profiles, schemas and filters to the client, which may only raise a DeltaSharingError.

::

    python -m tools.fuzz.wire --seconds 60                     # all targets
    python -m tools.fuzz.wire --target query --seed 7          # one target, repeatable
    python -m tools.fuzz.wire --target query --input 7b7d0a    # one input, as a failure prints it

Responses go through the whole client except the socket: ``SharedTable.scan().plan()`` and everything below it. JSON
is damaged as bytes and as values (wrong types, absurd numbers, deep and repeated objects). The exit code is 1 after
a failure.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import requests
import requests.structures

from delta_sharing_client.client import SharingClient
from delta_sharing_client.delta.log.log_lines import read_actions
from delta_sharing_client.delta.schema import parse_schema, schema_to_json, to_arrow_schema
from delta_sharing_client.errors import DeltaSharingError, IncompleteReadWarning, TransportError
from delta_sharing_client.http.body import Response
from delta_sharing_client.http.request_limits import Interrupt
from delta_sharing_client.http.sessions import Sessions
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.explain import explain
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.hints import from_json_hints, to_json_hints
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.table import SharedTable
from tests.time_limits import Stopwatch
from tools.fuzz.codecs import mutate
from tools.fuzz.wire_seeds import PROFILE, SCHEMA, SIGNATURE, TOKEN, URL, seeds

SLOW = 2.0
OPTIONS = ReadOptions(max_attempts=1, max_retry_seconds=0.1)
_MOST_REQUESTS = 12


class Failed(Exception):
    """Raised for an input for which the client broke its guarantee."""


# --- a client without a socket ---


class _Sessions(Sessions):
    """Sends the same response to every request (for metadata, only its first two lines); fails if the requests never
    end."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__()
        self._status, self._headers, self._body = status, headers, body
        self._left = _MOST_REQUESTS

    def ask(self, method: str, url: str, *_: Any) -> Response:
        self._left -= 1
        if self._left < 0:
            raise TransportError("enough")
        described = urlsplit(url).path.endswith("/metadata")
        body = b"\n".join(self._body.split(b"\n")[:2]) if described else self._body
        headers = requests.structures.CaseInsensitiveDict(self._headers)
        return Response(self._status, headers, url, None, io.BytesIO(body).read1, lambda: None)

    def close(self) -> None:
        pass


def client_for(body: bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> SharingClient:
    """Return a client whose server sends ``body`` as every response."""
    client = SharingClient(PROFILE, OPTIONS)
    sessions = _Sessions(status, {"Delta-Table-Version": "3"} if headers is None else headers, body)
    vars(client._rest._server).update(_sessions=sessions)
    return client


def table_for(body: bytes, **answer: Any) -> SharedTable:
    """Return a table whose server sends ``body`` as every response."""
    return client_for(body, **answer).table("s.d.t")


# --- targets ---


def query(data: bytes) -> None:
    """The bytes are the response to a query."""
    plan = table_for(data).scan(limit=5).plan()
    _use(plan)


def filtered_query(data: bytes) -> None:
    """The bytes are the response to the metadata request and to the query; the filter makes the client read
    statistics."""
    _use(table_for(data).scan(filter="a > 5 AND p = 'x' AND s.x < 2.5", columns=["a", "s.x"]).plan())


def changes(data: bytes) -> None:
    """The bytes are the response to a request for changes."""
    _use(table_for(data).changes(starting_version=0).plan())


def listing(data: bytes) -> None:
    """The bytes are the response to every listing."""
    client = client_for(data)
    refused = None
    for call in (client.list_shares, client.list_all_tables, lambda: client.get_share("s")):
        try:
            call()
        except DeltaSharingError as error:
            refused = error
    if refused is not None:
        raise refused


def failure(data: bytes) -> None:
    """The first byte is the status, the next bytes up to a line end are the value of all headers, and the rest is the
    body."""
    status = 100 + 2 * data[0] if data else 500
    value, _, body = data[1:].partition(b"\n")
    text = "".join(character for character in value.decode("latin-1") if character not in "\r\n")
    names = ("Delta-Table-Version", "delta-sharing-capabilities", "Retry-After", "fileidhash", "Content-Type")
    table = table_for(body, status=status, headers=dict.fromkeys(names, text))
    table.version()
    table.scan().plan()


def profile(data: bytes) -> None:
    """The bytes are a profile file."""
    repr(Profile.load(io.BytesIO(data)))


def schema(data: bytes) -> None:
    """The bytes are a schemaString."""
    parsed = parse_schema(data.decode("utf-8", "replace"))
    to_arrow_schema(parsed)
    written = schema_to_json(parsed)
    again = parse_schema(written)
    # Columns of unknown types are left out of the parsed schema, so they are missing from the written one.
    assert schema_to_json(again) == written
    assert again == parsed or parsed.all_left_out


def log(data: bytes) -> None:
    """The bytes are the lines of a commit."""
    for action in read_actions(data.split(b"\n"), "00000000000000000000.json"):
        repr(action)


def sql(data: bytes) -> None:
    """The bytes are SQL."""
    expression = parse_filter(data.decode("utf-8", "replace"))
    assert expression is not None
    str(expression)
    bound = bind(expression, SCHEMA)
    to_json_hints(bound, ["p"])


def json_hints(data: bytes) -> None:
    """The bytes are jsonPredicateHints."""
    expression = from_json_hints(data.decode("utf-8", "replace"))
    str(expression)
    bind(expression, SCHEMA)


def names(data: bytes) -> None:
    """The bytes are a table's name."""
    text = data.decode("utf-8", "surrogateescape")
    assert str(AssetName.parse(text)).count(".") >= 2


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (query, filtered_query, changes, listing, failure, profile, schema, log, sql, json_hints, names)
}
LINES = {"query", "filtered_query", "changes", "log"}
DOCUMENTS = {"listing", "profile", "schema", "json_hints"}


def _use(plan: Any) -> None:
    assert isinstance(plan.output_schema, pa.Schema)
    explain(plan)
    repr(plan)
    assert not any(SIGNATURE in repr(task) for task in plan.tasks)


# --- damage ---

_DEEP = 3000


def strange(random_: random.Random) -> Any:
    """Return a value that no writer would send."""
    return random_.choice(
        (
            None, True, "", "x", "\ud800", "-1", 0, -1, 1 << 31, 1 << 63, -(1 << 63) - 1, 10**400, 1e308, 0.5, [], {},
            [None], {"a": 1}, [[]], "9" * 5000, "\x00", "1e999999999", "\u2028", URL, "../../etc/passwd",
            "file:///etc/passwd", "http://[::1", "struct", "decimal(99999,1)", "2024-13-45", " ", "NaN",
        )
    )  # fmt: skip


def damage_value(value: Any, random_: random.Random) -> Any:
    """Return a JSON value with one node replaced, removed, duplicated or wrapped; JSON inside strings is damaged as
    well."""
    if isinstance(value, dict) and value and random_.random() < 0.85:
        key = random_.choice(list(value))
        kind = random_.randrange(12)
        rest = {name: item for name, item in value.items() if name != key}
        if kind == 0:
            return rest
        if kind == 1:
            return {**value, str(strange(random_)): value[key]}
        return {**value, key: damage_value(value[key], random_)}
    if isinstance(value, list) and value and random_.random() < 0.85:
        at = random_.randrange(len(value))
        kind = random_.randrange(6)
        if kind == 0:
            return value[:at] + value[at + 1 :]
        if kind == 1:
            return [*value, value[at]]
        return [*value[:at], damage_value(value[at], random_), *value[at + 1 :]]
    if isinstance(value, str) and value[:1] == "{" and random_.random() < 0.8:
        return _dumps(damage_value(json.loads(value), random_))
    if random_.random() < 0.03:
        return _Deep(random_.choice(("[]", '{"a":}', '{"type":"array","elementType":}')))
    return strange(random_)


class _Deep:
    """Represents JSON that is nested too deeply for a parser's stack."""

    def __init__(self, form: str) -> None:
        cut = len(form) - 1
        self.text = form[:cut] * _DEEP + "1" + form[cut:] * _DEEP


def _dumps(value: Any) -> str:
    deep: list[str] = []

    def note(item: Any) -> str:
        deep.append(item.text)
        return f"deep {len(deep) - 1}"

    text = json.dumps(value, default=note)
    for number, nested in enumerate(deep):
        text = text.replace(f'"deep {number}"', nested)
    return text


def damage(name: str, data: bytes, corpus: list[bytes], random_: random.Random) -> bytes:
    """Return ``data`` damaged as a value if it is JSON, otherwise (and every third time) as bytes."""
    if random_.random() < 0.3:
        return mutate(data, corpus, random_)
    try:
        if name in LINES:
            lines = [json.loads(line) for line in data.split(b"\n") if line.strip()]
            results = [_dumps(line) for line in damage_value(lines, random_)]
            return "\n".join(results).encode("utf-8", "surrogatepass")
        if name in DOCUMENTS:
            return _dumps(damage_value(json.loads(data), random_)).encode("utf-8", "surrogatepass")
    except (ValueError, TypeError, RecursionError):
        pass  # after earlier damage it may not be JSON
    return mutate(data, corpus, random_)


# --- running ---


def run_one(name: str, data: bytes) -> bool:
    """Feed one input; return whether it was accepted.

    Raises
    ------
    Failed
        An error other than ``DeltaSharingError`` was raised, it took too long, or a message contained a secret.
    """
    clock = Stopwatch(time.process_time)
    again = f"run again: python -m tools.fuzz.wire --target {name} --input {data.hex()[:20000]}"
    accepted = True
    real, Interrupt.sleep = Interrupt.sleep, lambda self, seconds: None  # type: ignore[method-assign, assignment]
    try:
        with warnings.catch_warnings():
            # The client warns of missing fields and reads the response without them.
            warnings.simplefilter("ignore", IncompleteReadWarning)
            TARGETS[name](data)
    except DeltaSharingError as error:
        accepted = False
        # Damage may move a profile's token into another field, whose value messages may show.
        secrets = (URL,) if name == "profile" else (TOKEN, URL)
        if any(secret in text for secret in secrets for text in (str(error), repr(error))):
            raise Failed(f"a message holds a secret: {error}\n{again}") from None
    except Exception as error:
        raise Failed(f"{type(error).__name__}: {str(error)[:500]}\n{again}") from error
    finally:
        Interrupt.sleep = real  # type: ignore[method-assign]
    if not clock.within(SLOW):
        raise Failed(f"it took {clock.took:.1f} seconds\n{again}")
    return accepted


def fuzz(targets: list[str], *, seed: int, seconds: float | None = None, inputs: int | None = None) -> str:
    """Damage seeds at random, for a time or for a number of inputs per target; return the counts. Raises ``Failed``."""
    random_ = random.Random(seed)
    lines = []
    for name in targets:
        corpus = seeds(name)
        for data in corpus:
            run_one(name, data)
        fed, accepted = len(corpus), 0
        stop = None if seconds is None else time.monotonic() + seconds / len(targets)
        while (inputs is None or fed < inputs) and (stop is None or time.monotonic() < stop):
            data = damage(name, random_.choice(corpus), corpus, random_)
            fed += 1
            if run_one(name, data):
                accepted += 1
                if len(corpus) < 500 and len(data) < 8192:
                    corpus.append(data)
        lines.append(f"{name}: {fed} inputs, {accepted} accepted")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the program that the module docstring describes."""
    parser = argparse.ArgumentParser(description="Feed malformed input to the client.")
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: all")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--input", type=bytes.fromhex, help="one input of one target, in hexadecimal")
    options = parser.parse_args(arguments)
    targets = options.target or list(TARGETS)
    write = sys.stdout.write
    if options.input is not None:
        write("accepted\n" if run_one(targets[0], options.input) else "refused\n")
        return 0
    write(f"seed {options.seed}\n")
    try:
        write(fuzz(targets, seed=options.seed, seconds=options.seconds) + "\n")
    except Failed as failed:
        write(f"FAILED: {failed}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

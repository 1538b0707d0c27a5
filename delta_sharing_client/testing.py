"""A sharing server for tests of code that reads shares.

For pytest, ``pytest_plugins = ["delta_sharing_client.testing"]`` in ``conftest.py`` adds the fixture
``delta_sharing_server``; elsewhere use `running`. Both need ``pip install "delta-sharing-client[server]"``.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, Union

import pyarrow as pa

from delta_sharing_client import optional
from delta_sharing_client.delta import actions
from delta_sharing_client.delta.schema import from_arrow_schema, to_arrow_schema, type_to_jsonable
from delta_sharing_client.errors import UsageError

__all__ = ["Server", "running"]

Rows = Any
"""A ``pyarrow.Table``, a pandas or Polars frame, or any other object that exports Arrow data
(``__arrow_c_stream__``)."""
Files = Union[str, "os.PathLike[str]", Mapping[str, Union[str, bytes]]]
"""A local directory, the URL of a directory in an object store, or ``{path: content}``."""
Tables = Union[str, "os.PathLike[str]", Mapping[str, Union[str, "os.PathLike[str]", Rows]]]

# The name of the server's package when it is installed, and its name in a clone of the repository.
_HOMES = ("delta_sharing_client._server", "mock_server")


class Server(Protocol):
    """A server on the loopback interface.

    ``profile_path`` is a profile file for the server, and ``profile`` the file's content; ``ca_path`` is the
    certificate to trust if the server was started with ``tls=True``.
    """

    endpoint: str
    profile: dict[str, Any]
    profile_path: Path
    ca_path: Path | None

    def stats(self) -> dict[str, Any]:
        """Return the numbers of requests and bytes since the start, or since `reset_stats`."""

    def reset_stats(self) -> dict[str, Any]:
        """Reset all counts and return the old ones."""

    def set_fault(self, text: str) -> None:
        """Simulate a fault, such as ``503-first=2`` (see docs/server.md)."""

    def clear_faults(self, name: str | None = None) -> None:
        """End one fault, or all of them."""

    def expire_urls(self) -> None:
        """Make all data URLs expire now."""


@contextlib.contextmanager
def running(
    tables: Tables | None = None,
    *,
    volumes: Mapping[str, Files] | None = None,
    skills: Mapping[str, Files] | None = None,
    models: Mapping[str, Mapping[int, Files]] | None = None,
    aliases: Mapping[str, Mapping[str, int]] | None = None,
    **options: Any,
) -> Iterator[Server]:
    """Run a server on a free port during a ``with`` block.

    Raises ``UsageError`` if the extra ``server`` is not installed, or a column has a type that Delta does not support.

    Parameters
    ----------
    tables:
        ``{"share.schema.table": rows or directory}``, or a directory of Delta tables. ``None`` serves sample assets
        (share ``demo``) if no other parameter names an asset. Rows are written as a Delta table with one version and an
        enabled change data feed.
    volumes, skills:
        ``{"share.schema.name": files}``, where ``files`` is a directory, a URL, or ``{path: content}``.
    models, aliases:
        ``{"share.schema.model": {version: files}}`` and ``{"share.schema.model": {alias: version}}``.
    options:
        Options of the server, such as ``url_ttl``, ``latency``, ``faults`` and ``tls``; see docs/server.md.
    """
    package = server_package()
    with tempfile.TemporaryDirectory(prefix="delta-sharing-") as folder:
        if isinstance(tables, Mapping):
            tables = {name: _directory(package, Path(folder), name, value) for name, value in tables.items()}
        place = Path(folder) / "assets"
        assets = {
            "volumes": {name: _written(place / "volumes", name, files) for name, files in (volumes or {}).items()},
            "skills": {name: _written(place / "skills", name, files) for name, files in (skills or {}).items()},
            "models": {
                name: {version: _written(place / str(version), name, files) for version, files in versions.items()}
                for name, versions in (models or {}).items()
            },
        }
        demo = tables is None and not any(assets.values())
        with package.running(tables, demo=demo, aliases=aliases, **assets, **options) as server:
            yield server


with contextlib.suppress(ModuleNotFoundError):
    import pytest

    @pytest.fixture
    def delta_sharing_server() -> Iterator[Callable[..., Server]]:
        """Return a function that starts a server, with the arguments of `running`. The servers stop at the end of the
        test."""
        with contextlib.ExitStack() as stack:
            yield lambda tables=None, **options: stack.enter_context(running(tables, **options))

    __all__ += ["delta_sharing_server"]


def server_package() -> ModuleType:
    """Return the package of the server. Raises `UsageError` if the extra ``server`` is not installed."""
    try:
        return optional.load(_HOMES[0], "server")
    except ModuleNotFoundError as error:
        if error.name != _HOMES[0]:
            raise
        return optional.load(_HOMES[1], "server")


def _written(folder: Path, name: str, files: Files) -> str | os.PathLike[str]:
    """Return the location of ``files``, which are written below ``folder`` if their content is given."""
    if not isinstance(files, Mapping):
        return files
    share_and_schema, _, directory = name.rpartition(".")
    root = folder / share_and_schema / directory
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content.encode() if isinstance(content, str) else content)
    root.mkdir(parents=True, exist_ok=True)
    return root


def _directory(package: ModuleType, folder: Path, name: str, value: Any) -> str | os.PathLike[str]:
    if isinstance(value, (str, os.PathLike)):
        return value
    try:
        given = value if isinstance(value, pa.Table) else pa.table(value)
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"The rows of '{name}' have a form that pyarrow {pa.__version__} does not support: {error}. Pass a "
            "'pyarrow.Table', or update pyarrow (the view types of Polars need pyarrow 16)."
        ) from None
    struct = from_arrow_schema(given.schema)
    try:
        schema = to_arrow_schema(struct)
        columns = [_column(column, field.type) for column, field in zip(given.columns, schema, strict=True)]
        rows = pa.table(columns, schema=schema)
    except pa.ArrowInvalid as error:
        raise UsageError(f"The rows of '{name}' do not fit the types of a Delta table: {error}.") from None
    writer_module = optional.load(f"{package.__name__}.table_writer", "server")
    now = datetime.datetime.now(datetime.timezone.utc)
    writer = writer_module.TableWriter(folder / f"{len(list(folder.iterdir()))}")
    described = writer_module.metadata(
        [(field.name, type_to_jsonable(field.type)) for field in struct.fields],
        table_id=name,
        name=name,
        description="",
        configuration={"delta.enableChangeDataFeed": "true"},
        time=now,
    )
    naive = "timestamp_ntz" in described.schema_string
    protocol = actions.Protocol(3, 7, ["timestampNtz"], ["timestampNtz", "changeDataFeed"]) if naive else None
    added = writer.add(rows, time=now)
    writer.commit([protocol or actions.Protocol(1, 4), described, added], "WRITE", now)
    written: Path = writer.root
    return written


def _column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if not pa.types.is_dictionary(column.type):
        return column.cast(kind)
    # Decoded here, because Arrow cannot decode a dictionary of views, which Polars exports.
    chunks = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(chunks, kind)

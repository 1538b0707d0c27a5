"""Reads the files of a volume, a skill or a version of a model as rows, with the columns of Spark's source
``binaryFile``: path, modification time, length and content.

The driver lists the files, and tasks read their content, if a query needs it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import pickle
import zlib
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark import cloudpickle

from delta_sharing_client.assets.directory import Directory, checked_path
from delta_sharing_client.assets.files import FileAsset
from delta_sharing_client.assets.model import Model
from delta_sharing_client.assets.skill import Skill
from delta_sharing_client.assets.volume import Volume
from delta_sharing_client.delta.actions import Metadata, Protocol
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.errors import DataError, NotFoundError, UsageError
from delta_sharing_client.fetch.place import StoredFile
from delta_sharing_client.fetch.source import Stale
from delta_sharing_client.instants import parse_instant
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.plan.packed import MOST_PARTS
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.tree import Expression, columns
from delta_sharing_client.protocol.line_order import TableHead
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.run.objects import Ahead
from delta_sharing_client.run.partitions import OPEN_COST, equal_shares
from delta_sharing_client.spark.file_options import AssetNoun, FileOptions
from delta_sharing_client.spark.served_table import user_agent
from delta_sharing_client.spark.source_options import SparkOptions
from delta_sharing_client.spark.types import relation_columns

CONTENT = "content"
MOST_BYTES = 2**31 - 16
"""The size of the largest file whose content Spark can hold in one value."""
_LISTED = pa.schema([("path", pa.string()), ("modificationTime", pa.timestamp("us", tz="UTC")), ("length", pa.int64())])
_TYPES = {"path": "string", "modificationTime": "timestamp", "length": "long", CONTENT: "binary"}
_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _TYPES.items()],
    }
)
# A row without content counts as this many bytes in a task.
_ROW_COST = 4 * 1024
_MOST_ROWS = 1000
_BATCH_BYTES = 16 * 1024 * 1024
_FILES_AHEAD, _BYTES_AHEAD = 8, 64 * 1024 * 1024
_KEPT_DIRECTORIES = 16
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[StoredFile]).decode


def describe(options: SparkOptions) -> TableHead:
    """Return the columns of the files in ``options``, and the version of a model, which an alias may name, as if they
    were a table. This asks the server for the asset, which may raise ``NotFoundError``. Raises ``UsageError`` for a
    malformed path, and for a condition on the content."""
    asset = _asset(options, None)
    with contextlib.closing(asset.rest):
        asset._files_location()
    assert options.files is not None
    checked_path(options.files.folder, asset._ref)
    list(_conditions(options))
    return TableHead(
        version=asset._ref.version or 0,
        response_format=ResponseFormat.DELTA,
        protocol=Protocol(min_reader_version=1),
        metadata=Metadata(id="", schema_string=_SCHEMA),
    )


class FilesPart:
    """Some files of an asset, for one task. Its pickle contains credentials; its repr does not."""

    def __init__(self, directory: bytes, files: Sequence[bytes], *, has_content: bool) -> None:
        self._directory = directory
        self._files = files
        self._has_content = has_content

    def __repr__(self) -> str:
        return "FilesPart()"

    @contextlib.contextmanager
    def read(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """Return the rows as batches, in a ``with`` block.

        The iterator raises ``DataError``, which names the file, if a file is too large, or is not there any more as the
        listing states it; and the errors of ``FileAsset.open``.
        """
        files = [file for packed in self._files for file in _decode(zlib.decompress(packed))]
        with contextlib.closing(_with_content(self._directory, files) if self._has_content else _listed(files)) as rows:
            yield rows


class PlannedPart(NamedTuple):
    """A part, with the bytes and the number of its rows."""

    part: FilesPart
    bytes: int
    rows: int


def plan_files(options: SparkOptions, version: int, wanted: Sequence[str], least: int) -> list[PlannedPart]:
    """List the files in ``options``, and return parts of similar size for the columns ``wanted``.

    ``version`` is that of a model. A part has at least ``least`` bytes, as far as there are files. Raises ``DataError``
    for a file whose name is not UTF-8, and the errors of ``FileAsset.files``.
    """
    asset = _asset(options, version)
    has_content = CONTENT in wanted
    with contextlib.closing(asset.rest):
        directory = Directory(asset)
        chunks = list(_chunks(_chosen(directory, options), least, has_content=has_content))
        # Functions that return a token need Spark's pickler. After the listing, the credentials are in the pickle.
        sent: bytes = cloudpickle.dumps(directory)  # type: ignore[no-untyped-call]
    total = sum(chunk.cost for chunk in chunks)
    share = min(options.max_partition_bytes, max(least, -(-total // max(1, options.parallelism))))
    parts = []
    count = min(MOST_PARTS, max(1, -(-total // share)))
    for numbers in equal_shares([chunk.cost for chunk in chunks], count):
        some = [chunks[number] for number in numbers]
        part = FilesPart(sent, tuple(chunk.packed for chunk in some), has_content=has_content)
        parts.append(PlannedPart(part, sum(chunk.bytes for chunk in some), sum(chunk.files for chunk in some)))
    return parts


# === On the driver ===


def _asset(options: SparkOptions, version: int | None) -> FileAsset:
    """Return the asset in ``options``. A request is sent only for the alias of a model, and if ``version`` is
    ``None``."""
    asked, read = options.files, options.read_options()
    assert asked is not None
    rest = RestClient(options.profile, read, user_agent=user_agent(Operation.SNAPSHOT, options.caller_org))
    if asked.asset is AssetNoun.VOLUME:
        return Volume(options.table, rest, read)
    if asked.asset is AssetNoun.SKILL:
        return Skill(options.table, rest, read)
    model = Model(options.table, rest, read)
    number = asked.model_version if version is None else version
    if number is not None:
        return model.version(number)
    assert asked.model_alias is not None
    return model.alias(asked.model_alias)


def _chosen(directory: Directory, options: SparkOptions) -> Iterator[StoredFile]:
    """List the files that the options and the conditions of the query choose, up to the limit."""
    asked = options.files
    assert asked is not None
    pushed = options.pushed
    limits = (options.read.limit, None if pushed is None else pushed.rows)
    left = min((rows for rows in limits if rows is not None), default=None)
    conditions = list(_conditions(options))
    listing = directory.files(asked.folder, asked.pattern, exclude=asked.exclude, recursive=asked.recursive)
    with contextlib.closing(listing):
        while page := listing.several():
            files = [file for file in page if _is_between(file, asked, directory)]
            for condition in conditions:
                matches = mask(condition, _rows(files)).to_pylist()
                files = list(itertools.compress(files, matches))
            for file in files:
                _check_name(file, directory)
            yield from files[:left]
            if left is not None:
                left -= min(left, len(files))
                if not left:
                    return


def _conditions(options: SparkOptions) -> Iterator[Expression]:
    own, pushed = options.read.filter, options.pushed
    if own is not None:
        if any(path[0].lower() == CONTENT for path in columns(own)):
            raise UsageError(
                "Option 'filter' chooses files by 'path', 'modificationTime' and 'length', not by 'content'; use "
                "'where' of the DataFrame."
            )
        yield bind(own, _LISTED)
    if pushed is not None:
        # A condition on the content is not applied here: Spark applies all of them.
        found = pushed.filter(relation_columns(_SCHEMA, options).schema, _LISTED)
        if found is not None:
            yield bind(found, _LISTED)


def _is_between(file: StoredFile, asked: FileOptions, directory: Directory) -> bool:
    if asked.modified_after is None and asked.modified_before is None:
        return True
    if file.modified is None:
        raise UsageError(
            f"The server does not state when the files of {directory.ref} were last written; leave out the options "
            "'modifiedAfter' and 'modifiedBefore'."
        )
    is_after = asked.modified_after is None or file.modified > parse_instant(asked.modified_after)
    return is_after and (asked.modified_before is None or file.modified < parse_instant(asked.modified_before))


def _check_name(file: StoredFile, directory: Directory) -> None:
    try:
        file.path.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"The name of the file {file.path!r} of {directory.ref} is not UTF-8, so it cannot be a string of Spark; "
            "leave the file out with the option 'pathGlobExclude'."
        ) from None


class _Chunk(NamedTuple):
    """Some consecutive files: compressed, their number, the bytes of their rows, and the bytes that they count as."""

    packed: bytes
    files: int
    bytes: int
    cost: int


def _chunks(files: Iterator[StoredFile], least: int, *, has_content: bool) -> Iterator[_Chunk]:
    """Return ``files`` in chunks of about ``least`` bytes, or more if there would be too many chunks."""
    waiting: list[StoredFile] = []
    size = total = 0
    for file in files:
        waiting.append(file)
        size += file.size + OPEN_COST if has_content else _ROW_COST
        if len(waiting) == _MOST_ROWS or size >= max(least, total // MOST_PARTS):
            yield _chunk(waiting, size, has_content)
            waiting, size, total = [], 0, total + size
    if waiting:
        yield _chunk(waiting, size, has_content)


def _chunk(files: list[StoredFile], cost: int, has_content: bool) -> _Chunk:
    size = sum(len(file.path) + 16 + (file.size if has_content else 0) for file in files)
    return _Chunk(zlib.compress(_encode(files), 1), len(files), size, cost)


# === In a task ===

# The tasks of a worker share the credentials of a directory, and what is known of its place.
_opened = functools.lru_cache(_KEPT_DIRECTORIES)(pickle.loads)


def _listed(files: list[StoredFile]) -> Generator[pa.RecordBatch, None, None]:
    for start in range(0, len(files), _MOST_ROWS):
        yield _rows(files[start : start + _MOST_ROWS])


def _rows(files: Sequence[StoredFile]) -> pa.RecordBatch:
    values = ([file.path for file in files], [file.modified for file in files], [file.size for file in files])
    arrays = [pa.array(given, field.type) for given, field in zip(values, _LISTED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_LISTED)


def _with_content(pickled: bytes, files: Sequence[StoredFile]) -> Generator[pa.RecordBatch, None, None]:
    directory: Directory = _opened(pickled)
    ahead: Ahead[int, memoryview] = Ahead(lambda number: _content(directory, files[number]))
    contents: list[memoryview] = []
    first = size = 0
    with contextlib.closing(ahead):
        for number, file in enumerate(files):
            if contents and (size + file.size > _BATCH_BYTES or len(contents) == _MOST_ROWS):
                yield _joined(files[first:number], contents)
                first, contents, size = number, [], 0
            ahead.expect(_next(files, number))
            contents.append(ahead.get(number))
            size += file.size
        if contents:
            yield _joined(files[first:], contents)


def _next(files: Sequence[StoredFile], number: int) -> Iterator[int]:
    """Return the numbers of the next files that may be in memory together: at least the first one."""
    left = _BYTES_AHEAD
    for one in range(number, min(len(files), number + _FILES_AHEAD)):
        left -= files[one].size
        if left < 0 and one > number:
            return
        yield one


async def _content(directory: Directory, file: StoredFile) -> memoryview:
    if file.size > MOST_BYTES:
        raise DataError(
            f"The file '{file.path}' of {directory.ref} has {file.size} bytes, but a value of Spark holds at most "
            f"{MOST_BYTES}. Leave the file out with a condition on 'length' or the option 'pathGlobExclude', and read "
            "it with download() or open()."
        )
    if not file.size:
        return memoryview(b"")
    try:
        # Only the listed version belongs to the row.
        return await directory.read(file.path, file, ByteRange(0, file.size), once=True)
    except Stale as stale:
        raise stale.ended() from None
    except NotFoundError:
        raise DataError(
            f"The file '{file.path}' of {directory.ref} was listed, but is not there any more; run the query again."
        ) from None


def _joined(files: Sequence[StoredFile], contents: list[memoryview]) -> pa.RecordBatch:
    ends = pa.array(itertools.accumulate(map(len, contents), initial=0), pa.int32())
    # A single file, which may be large, is not copied.
    data = contents[0] if len(contents) == 1 else b"".join(contents)
    column = pa.Array.from_buffers(pa.binary(), len(contents), [None, ends.buffers()[1], pa.py_buffer(data)])
    return pa.RecordBatch.from_arrays([*_rows(files).columns, column], names=[*_LISTED.names, CONTENT])

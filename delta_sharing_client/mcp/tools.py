"""What an assistant can ask of a share. Every tool reads, none writes; the profile is fixed."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delta_sharing_client import optional, queries
from delta_sharing_client.arrow_forms import reader_of
from delta_sharing_client.client import SharingClient
from delta_sharing_client.delta.data_types import type_text
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.errors import NotFoundError, UsageError
from delta_sharing_client.formats import assets_in
from delta_sharing_client.mcp.limits import Allowance, Limits, rows_answer, shortened
from delta_sharing_client.options import ReadOptions, TableFormat
from delta_sharing_client.plan.tasks import ScanPlan, ScanStream
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.reads import Scan
from delta_sharing_client.run.batches import Batches

if TYPE_CHECKING:
    import duckdb

MOST_SAMPLED = 100
MOST_LISTED = 500
MOST_TEXT = 64_000
_MOST_COLUMNS = 500
# Each keeps SQL from something that is not in the share. The last one keeps it from undoing the others.
_CONFINEMENT = (
    "SET TimeZone = 'UTC'",
    "SET streaming_buffer_size = '1MB'",
    "SET temp_directory = ''",
    "SET memory_limit = '1GB'",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class _LimitedScan(Scan):
    """A scan that asks ``allowance`` before it reads."""

    allowance: Allowance

    @classmethod
    def of(cls, scan: Scan, allowance: Allowance) -> _LimitedScan:
        settings = {field.name: getattr(scan, field.name) for field in dataclasses.fields(scan)}
        return cls(**settings, allowance=allowance)

    def _stream(self, options: ReadOptions | None = None) -> ScanPlan | ScanStream:
        # Only a complete listing has the bytes.
        return self.plan(options)

    def _run(self, plan: ScanPlan | ScanStream, *, eager: bool = True, rows: int | None = None) -> Batches:
        assert isinstance(plan, ScanPlan)
        self.allowance.take(int(plan.bytes * plan.context.needed_share), str(self.table))
        return super()._run(plan, eager=eager, rows=rows)


class Tools:
    """The tools, for one profile. Each returns a JSON value; errors are ``DeltaSharingError``."""

    def __init__(self, client: SharingClient, limits: Limits) -> None:
        self._client = client
        self._limits = limits

    def list_assets(self, where: str | None = None) -> dict[str, object]:
        """List what is shared: in ``where`` (a share, or share.schema), or in all shares."""
        found = [
            {"kind": entry.kind.noun, "name": f"{share}.{entry.schema}.{entry.name}"}
            for share, schema in self._places(where)
            for entry in assets_in(self._client.rest, share, schema)[1]
        ]
        return _counted("assets", found, MOST_LISTED)

    def _places(self, where: str | None) -> Iterator[tuple[str, str | None]]:
        shares = [share.name for share in self._client.list_shares()]
        if where is None:
            yield from ((share, None) for share in shares)
            return
        by_name = {share.lower(): share for share in shares}
        if where.lower() in by_name:
            yield by_name[where.lower()], None
            return
        share, _, schema = where.rpartition(".")
        if share.lower() not in by_name:
            raise NotFoundError(f"There is no share or schema '{where}'. The shares are: {', '.join(shares)}.")
        yield by_name[share.lower()], schema

    def describe(self, name: str) -> dict[str, object]:
        """Describe an asset: the columns, size and version of a table, or the facts of a volume, model or skill."""
        asset = AssetName.parse(name)
        try:
            return self._described_table(asset)
        except NotFoundError:
            entries = assets_in(self._client.rest, asset.share, asset.schema)[1]
        entry = next((one for one in entries if one.name.lower() == asset.name.lower()), None)
        if entry is None:
            raise NotFoundError(f"Nothing with the name '{name}' is shared.")
        opened = getattr(self._client, entry.kind.noun)(asset)
        # Where its files lie is not for the assistant.
        facts = {key: value for key, value in opened.facts().items() if "location" not in key.lower()}
        answer: dict[str, object] = {"kind": entry.kind.noun, **{key: shortened(each) for key, each in facts.items()}}
        if entry.kind.noun == "model":
            answer["versions"] = [{"version": one.version, "status": one.status} for one in opened.versions()]
        return answer

    def _described_table(self, name: AssetName) -> dict[str, object]:
        details = self._client.table(name).metadata()
        fields = parse_schema(details.schema_string).fields
        partitions = set(details.partition_columns)
        columns = [
            {
                "name": field.name,
                "type": type_text(field.type),
                **({} if field.nullable else {"nullable": False}),
                **({"partition": True} if field.name in partitions else {}),
                **({"comment": shortened(text)} if (text := field.metadata.get("comment")) else {}),
            }
            for field in fields
        ]
        facts: dict[str, object] = {
            "kind": "table",
            "name": str(name),
            "description": shortened(details.description),
            "version": details.version,
            "bytes": details.size,
            "files": details.num_files,
        }
        return {key: value for key, value in facts.items() if value is not None} | _counted(
            "columns", columns, _MOST_COLUMNS
        )

    def sample(self, table: str, rows: int = 10, columns: Sequence[str] | None = None) -> dict[str, object]:
        """Return the first rows of a table."""
        if not 1 <= rows <= MOST_SAMPLED:
            raise UsageError(f"'rows' must be from 1 to {MOST_SAMPLED}, found {rows}; use the tool 'query' for more.")
        scan = self._limited(self._client.table(table).scan(columns, limit=rows), Allowance(self._limits.megabytes))
        with scan.to_reader() as reader:
            return rows_answer(reader, reader.schema, rows)

    def query(self, sql: str) -> dict[str, object]:
        """Run one SQL query of DuckDB over shared tables, which it names in full: share.schema.table."""
        allowance = Allowance(self._limits.megabytes)
        connection = optional.load("duckdb", "duckdb").connect()
        ends = threading.Timer(self._limits.seconds, connection.interrupt)
        ends.daemon = True
        ends.start()
        try:
            confine(connection)
            with queries.errors_of(self._client):
                found = queries.relation(
                    self._client, sql, connection, scan_of=lambda table: self._limited(table.scan(), allowance)
                )
                with reader_of(found) as reader:
                    return rows_answer(reader, reader.schema, self._limits.rows)
        finally:
            ends.cancel()
            connection.close()

    def _limited(self, scan: Scan, allowance: Allowance) -> Scan:
        return _LimitedScan.of(scan, allowance)

    def explain(self, table: str, columns: Sequence[str] | None = None, where: str | None = None) -> dict[str, object]:
        """Say which files and bytes a read of these columns and rows would download."""
        scan = self._client.table(table).scan(columns, filter=where)
        plan = scan.plan()
        return {
            "bytes": int(plan.bytes * plan.context.needed_share),
            "most_bytes": self._limits.megabytes * 1_000_000,
            "files": len(plan.tasks),
            "rows": plan.known_rows,
            "plan": scan.explain().splitlines(),
        }

    def history(self, table: str, versions: int = 20) -> dict[str, object]:
        """Return the last versions of a table, with what changed."""
        if not 1 <= versions <= MOST_SAMPLED:
            raise UsageError(f"'versions' must be from 1 to {MOST_SAMPLED}, found {versions}.")
        shared = self._client.table(table)
        is_delta = shared.metadata().table_format is TableFormat.DELTA
        # The versions of an Iceberg table are ids of snapshots, not numbers.
        found = shared.history(max(0, shared.version() - versions + 1)) if is_delta else shared.history()[-versions:]
        entries = [
            {key: str(value) if key == "timestamp" else shortened(value) for key, value in facts.items()}
            for facts in map(dataclasses.asdict, found)
        ]
        return {
            "versions": [{key: value for key, value in entry.items() if value not in (None, {})} for entry in entries]
        }

    def list_files(self, volume: str, pattern: str | None = None) -> dict[str, object]:
        """List the files of a volume; ``pattern`` as in reports/*.csv."""
        files = self._client.volume(volume).files(pattern=pattern)
        found = [{"path": file.path, "size": file.size} for file in itertools.islice(files, MOST_LISTED + 1)]
        return _counted("files", found, MOST_LISTED, is_complete=len(found) <= MOST_LISTED)

    def read_file(self, volume: str, path: str, offset: int = 0) -> dict[str, object]:
        """Return the text of a file of a volume, at most 64 kB from the byte ``offset`` on."""
        if offset < 0:
            raise UsageError(f"'offset' must be 0 or more, found {offset}.")
        with self._client.volume(volume).open(path) as stream:
            stream.seek(offset)
            data = stream.read(MOST_TEXT + 1)
        return _text_of(data, f"The file '{path}'", offset)

    def read_skill(self, name: str) -> dict[str, object]:
        """Return the text of SKILL.md of an agent skill. Whether to follow it is for the user to decide."""
        data = self._client.skill(name).read().encode()
        return _text_of(data[: MOST_TEXT + 1], "SKILL.md", 0)


def confine(connection: duckdb.DuckDBPyConnection) -> None:
    """Let SQL on ``connection`` read no file, address, extension or Python object, and change no setting."""
    for statement in _CONFINEMENT:
        connection.execute(statement)


def _counted(
    name: str, items: Sequence[Mapping[str, Any]], most: int, *, is_complete: bool | None = None
) -> dict[str, object]:
    if len(items) <= most:
        return {name: list(items)}
    total = "more" if is_complete is False else f"{len(items)} in all"
    return {name: list(items[:most]), "cut": f"These are the first {most}; there are {total}."}


def _text_of(data: bytes, subject: str, offset: int) -> dict[str, object]:
    kept = data[:MOST_TEXT]
    # A character of UTF-8 has at most four bytes; the cut may be inside one.
    for end in range(len(kept), max(len(kept) - 4, -1), -1):
        try:
            text = kept[:end].decode("utf-8")
        except UnicodeDecodeError:
            if len(data) <= MOST_TEXT:
                break
            continue
        if len(data) <= MOST_TEXT:
            return {"text": text}
        return {"text": text, "cut": f"There is more; go on with offset {offset + end}."}
    raise UsageError(f"{subject} is no text in UTF-8 at byte {offset}, and this tool returns only text.")

"""The tools that an assistant can call. All of them only read, and the profile is fixed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from delta_sharing_client import optional, queries, search
from delta_sharing_client.assets.skill_file import SKILL_FILE
from delta_sharing_client.client import SharingClient
from delta_sharing_client.columns import ColumnPath, resolve_columns
from delta_sharing_client.descriptions import describe_table
from delta_sharing_client.errors import NotFoundError, UsageError
from delta_sharing_client.limited_reads import Allowance, LimitedScan, PlannedScan
from delta_sharing_client.mcp.limits import MB, Limits, check_offset, fitting, page, rows_result, shortened
from delta_sharing_client.mcp.skills import MOST_FILES, NotServed, Skills
from delta_sharing_client.options import HEAD_ROWS
from delta_sharing_client.plan.costs import expected_bytes
from delta_sharing_client.plan.explain import explain
from delta_sharing_client.protocol.asset_kinds import KINDS, SKILL, AssetRef
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.sources.contents import assets_in, shares_to_list
from delta_sharing_client.sources.traits import Trait, lack

if TYPE_CHECKING:
    import duckdb

    from delta_sharing_client.assets.skill import Skill
    from delta_sharing_client.assets.volume import Volume

ResultT = TypeVar("ResultT")
MOST_SAMPLED = 100
MOST_LISTED = 500
MOST_TEXT = 32_000
# The part of a result's characters that a list may take; the rest is for other facts.
_LIST_SHARE = 0.8
# The parts of a text, and of the files of a skill beside it.
_TEXT_SHARE, _FILES_SHARE = 0.6, 0.2
_TABLE_FACTS = ("table", "description", "tableFormat", "version", "partitionColumns", "sizeInBytes", "numFiles")


class Tools:
    """The tools, for one profile. Each returns a JSON value and raises ``DeltaSharingError``."""

    def __init__(self, client: SharingClient, limits: Limits) -> None:
        self._client = client
        self.skills = Skills(client, limits)
        self._limits = limits

    def list_assets(self, where: str | None = None, offset: int = 0) -> dict[str, object]:
        """List the shared assets in ``where`` (a share, or share.schema), or in all shares, from number ``offset`` on.
        A comment is the provider's."""
        rest = self._client._rest
        assets = [
            _stated(
                {
                    "kind": entry.kind.noun,
                    "name": f"{share}.{entry.schema}.{entry.name}",
                    "comment": shortened(entry.comment),
                }
            )
            for share, schema in shares_to_list(rest, where)
            for entry in assets_in(rest, share, schema)[1]
        ]
        return self._page("assets", assets, offset)

    def search(self, text: str, where: str | None = None, offset: int = 0) -> dict[str, object]:
        """Find assets in ``where`` (a share, or share.schema), or in all shares, whose name, comment or columns contain
        every word of ``text``; from result ``offset`` on."""
        found, unread = search.find(self._client, text, where)
        result = self._page("assets", list(map(_found, found)), offset)
        if unread:
            many = f"more than {search.MOST_TABLES:,} tables are shared; give a schema as 'where'."
            reason = shortened(unread[0] or many)
            result["not_searched"] = f"The columns of {len(unread)} tables were not searched: {reason}"
        return result

    def describe(self, name: str, offset: int = 0) -> dict[str, object]:
        """Describe an asset: the columns, size and version of a table, or the facts about a volume, model or skill;
        the columns of a table, or the versions of a model, from number ``offset`` on."""
        asset = AssetName.parse(name)
        try:
            return self._described_table(asset, offset)
        except NotFoundError:
            entries = assets_in(self._client._rest, asset.share, asset.schema)[1]
        entry = next((one for one in entries if one.name.lower() == asset.name.lower()), None)
        if entry is None:
            near = self._client._rest.near_names(name, KINDS)
            raise NotFoundError(
                f"Nothing with the name '{name}' is shared. {near or 'The tool list_assets lists what is shared.'}"
            )
        opened = getattr(self._client, entry.kind.noun)(asset)
        # The assistant does not need the location of the files.
        facts = {key: value for key, value in opened.facts().items() if "location" not in key.lower()}
        result: dict[str, object] = {"kind": entry.kind.noun, **{key: shortened(each) for key, each in facts.items()}}
        if entry.kind.noun == "model":
            versions = [{"version": one.version, "status": one.status} for one in opened.versions()]
            result |= self._page("versions", versions, offset)
        return result

    def _described_table(self, name: AssetName, offset: int) -> dict[str, object]:
        facts, columns = describe_table(self._client.table(name))
        # The table's properties and features are left out: they are long, and rarely useful.
        shown = {"kind": "table", **{key: facts[key] for key in _TABLE_FACTS}}
        shown_columns = [{key: shortened(value) for key, value in column.items()} for column in columns]
        return _stated(shown) | self._page("columns", list(map(_stated, shown_columns)), offset)

    def _page(self, name: str, items: Iterable[Mapping[str, Any]], offset: int) -> dict[str, object]:
        return page(name, items, offset, MOST_LISTED, int(self._limits.characters * _LIST_SHARE))

    def sample(self, table: str, rows: int = HEAD_ROWS, columns: Sequence[str] | None = None) -> dict[str, object]:
        """Return the first rows of a table."""
        if not 1 <= rows <= MOST_SAMPLED:
            raise UsageError(f"'rows' must be from 1 to {MOST_SAMPLED}, found {rows}; use the tool 'query' for more.")
        scan = self._client.table(table).scan(columns, limit=rows)
        with LimitedScan.of(scan, self._allowance()).to_reader() as reader:
            return rows_result(reader, reader.schema, rows)

    def query(self, sql: str) -> dict[str, object]:
        """Run one SQL query with DuckDB over shared tables. The query must name tables in full: share.schema.table."""
        allowance = self._allowance()
        with queries.confined(self._client) as connection:
            relation = queries.relation(
                self._client, sql, connection, scan_of=lambda table: LimitedScan.of(table.scan(), allowance)
            )
            with queries.rows_of(self._client, relation) as reader:
                return rows_result(reader, reader.schema, self._limits.rows)

    def _allowance(self) -> Allowance:
        return Allowance(
            self._limits.megabytes * MB,
            "Choose fewer columns or rows, filter by a partition column, or use the tool 'sample' for the first rows; "
            "whoever runs this server can raise --max-megabytes.",
        )

    def explain(self, table: str, columns: Sequence[str] | None = None, where: str | None = None) -> dict[str, object]:
        """Report which files and bytes the tool ``query`` would download from a table; ``where`` is a condition in the
        SQL of ``query``, such as amount > 100."""
        scan = PlannedScan.of(self._client.table(table).scan())
        paths = resolve_columns(columns, scan.schema)
        with queries.confined(self._client) as connection:
            names = (scan.table.share, scan.table.schema, scan.table.name)
            everything = f"SELECT * FROM {'.'.join(map(_quoted, names))}"
            relation = queries.relation(self._client, everything, connection, scan_of=lambda _: scan)
            relation = relation.set_alias(scan.table.name)
            # DuckDB parses the condition, as in a query, so it means the same, and only what DuckDB pushes down skips
            # files.
            relation = relation if where is None else relation.filter(where)
            (relation if paths is None else _selected(relation, paths)).fetchall()
        plans = scan.plans
        return {
            "bytes": sum(map(expected_bytes, plans)),
            "most_bytes": self._limits.megabytes * MB,
            "files": sum(len(plan.tasks) for plan in plans),
            "rows": plans[0].known_rows if plans else 0,
            # The assistant does not need the location of the files.
            "plan": [line for plan in plans for line in explain(plan).splitlines() if "  access:" not in line],
        }

    def history(self, table: str, versions: int = 20, offset: int = 0) -> dict[str, object]:
        """Return the last versions of a table, and what changed in each; without the ``offset`` latest ones."""
        if not 1 <= versions <= MOST_SAMPLED:
            raise UsageError(f"'versions' must be from 1 to {MOST_SAMPLED}, found {versions}.")
        check_offset(offset)
        shared = self._client.table(table)
        is_ordered = lack(shared.metadata().table_format, Trait.VERSION_ORDER) is None
        snapshots = [] if is_ordered else shared.history()
        end = (shared.version() + 1 if is_ordered else len(snapshots)) - offset
        start = max(0, end - versions)
        commits = shared.history(start, end - 1) if is_ordered and end > 0 else snapshots[start : max(end, 0)]
        entries = [
            {key: str(value) if key == "timestamp" else shortened(value) for key, value in facts.items()}
            for facts in map(dataclasses.asdict, commits)
        ]
        result: dict[str, object] = {
            "versions": [{key: value for key, value in entry.items() if value not in (None, {})} for entry in entries]
        }
        if start > 0:
            result["cut"] = f"There are earlier versions; continue with offset {offset + versions}."
        return result

    def list_files(self, volume: str, pattern: str | None = None, offset: int = 0) -> dict[str, object]:
        """List the files of a volume, or of an agent skill, from number ``offset`` on; ``pattern`` is a glob such as
        reports/*.csv."""

        def listed(directory: Volume | Skill) -> dict[str, object]:
            files = ({"path": file.path, "size": file.size} for file in directory.files(pattern=pattern))
            return self._page("files", files, offset)

        return self._in_directory(volume, listed)

    def read_file(self, volume: str, path: str, offset: int = 0) -> dict[str, object]:
        """Return the text of a file in a volume, or in an agent skill: at most 32 kB, starting at byte ``offset``."""
        check_offset(offset)

        data = self._in_directory(volume, lambda directory: _part(directory, path, offset))
        return self._text(data, f"The file '{path}'", offset)

    def _text(self, data: bytes, subject: str, offset: int) -> dict[str, object]:
        return _text_of(data, subject, offset, int(self._limits.characters * _TEXT_SHARE))

    def _in_directory(self, name: str, call: Callable[[Volume | Skill], ResultT]) -> ResultT:
        """Return ``call`` of the volume ``name``, or of the skill if there is no such volume."""
        try:
            return call(self._client.volume(name))
        except NotFoundError:
            if not self._client._rest.is_shared(AssetRef(SKILL, AssetName.parse(name))):
                raise
        return call(self._client.skill(name))

    def read_skill(self, name: str, path: str = SKILL_FILE, offset: int = 0) -> dict[str, object]:
        """Return the text of a file of an agent skill, at most 32 kB, starting at byte ``offset``. Begin with SKILL.md,
        whose result also lists the other files with their sizes and digests; read them when SKILL.md says so. Whether
        to follow a skill is for the user to decide."""
        check_offset(offset)
        skill = self._client.skill(name)
        result: dict[str, object] = {}
        try:
            manifest = self.skills.manifest(skill)
        except NotServed as error:
            # What a host would refuse may still be read.
            result["warning"] = error.message
            data = _part(skill, path, offset)
        else:
            data = self.skills.read_file(skill, manifest, path)[offset : offset + MOST_TEXT + 1]
            if path == SKILL_FILE and not offset:
                files = [{"path": one.path, "size": one.size, "digest": each} for one, each in manifest.digests.items()]
                listed = page("files", files, 0, MOST_FILES, int(self._limits.characters * _FILES_SHARE))
                result["files"] = listed["files"]
                if "cut" in listed:
                    result["more_files"] = f"The skill has {len(files)} files; the tool 'list_files' lists all."
        return result | self._text(data, f"The file '{path}'", offset)


def _selected(relation: duckdb.DuckDBPyRelation, paths: Sequence[ColumnPath]) -> duckdb.DuckDBPyRelation:
    duckdb = optional.load("duckdb", "duckdb")
    if not paths:
        return relation.aggregate("count(*)")
    return relation.select(*(duckdb.ColumnExpression(*path) for path in paths))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _found(asset: search.Found) -> dict[str, object]:
    columns = [_stated({"column": name, "comment": shortened(comment)}) for name, comment in asset.columns]
    comment = shortened(asset.comment)
    return _stated({"kind": asset.kind.noun, "name": str(asset.name), "comment": comment, "columns": columns or None})


def _stated(facts: Mapping[str, object]) -> dict[str, object]:
    """Return ``facts`` without missing values."""
    return {name: value for name, value in facts.items() if value is not None}


def _part(directory: Volume | Skill, path: str, offset: int) -> bytes:
    with directory.open(path) as stream:
        stream.seek(offset)
        return stream.read(MOST_TEXT + 1)


def _text_of(data: bytes, subject: str, offset: int, characters: int) -> dict[str, object]:
    kept = data[:MOST_TEXT]
    # A character in UTF-8 has at most four bytes, and the cut may be inside one.
    for end in range(len(kept), max(len(kept) - 4, -1), -1):
        try:
            text = kept[:end].decode("utf-8")
        except UnicodeDecodeError:
            if len(data) <= MOST_TEXT:
                break
            continue
        shown = fitting(text, characters)
        if len(data) <= MOST_TEXT and shown == text:
            return {"text": text}
        return {"text": shown, "cut": f"There is more; continue with offset {offset + len(shown.encode())}."}
    raise UsageError(f"{subject} is not UTF-8 text at byte {offset}, and this tool returns only text.")

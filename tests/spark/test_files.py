"""Files of volumes, skills and models as rows: as Spark's own source ``binaryFile`` reads them."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.spark import file_rows, session_credentials, to_spark
from delta_sharing_client.spark.datasource import HAS_DATA_SOURCES, LEAST_PARTITION, DeltaSharingSource
from delta_sharing_client.spark.source_options import SparkOptions
from tests.object_stores import S3, URLS, SimulatedStore
from tests.spark.test_task_secrets import sent
from tests.store_matrix import FILES, FOLDER, LARGE, SECRET, VOLUME, Station, simulated, station

pytestmark = pytest.mark.spark
needs_format = pytest.mark.skipif(not HAS_DATA_SOURCES, reason="PySpark 3.5 has no Python data sources")

SKILL = b"---\nname: skill-one\ndescription: Tests.\n---\nRead."
CONTENTS = {
    "a.txt": b"text",
    "b/c/empty": b"",
    "b/c/y.jpg": b"jj",
    "b/x.png": os.urandom(300_000),
    "b/z é+#%.txt": b"z",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server with a volume, a skill and a model, whose files are in ``root`` below the name of the asset."""
    root = tmp_path_factory.mktemp("assets")
    for asset in ("volume", "skill-one", "model/1", "model/2"):
        for path, content in {**CONTENTS, "SKILL.md": SKILL}.items():
            (root / asset / path).parent.mkdir(parents=True, exist_ok=True)
            (root / asset / path).write_bytes(content)
    os.utime(root / "volume" / "a.txt", (1_000_000_000, 1_000_000_000))
    with mock_server.running(
        volumes={"s.d.v": root / "volume"},
        skills={"s.d.skill-one": root / "skill-one"},
        models={"s.d.m": root / "model"},
        aliases={"s.d.m": {"best": 2}},
    ) as server:
        server.root = root
        yield server


def by_format(spark: Any, server: Any, name: str = "s.d.v", **options: str) -> Any:
    fields = {field: str(value) for field, value in server.profile.items()}
    return spark.read.format("deltaSharing").options(**fields, **{"asset": "volume", **options}).load(name)


def source_of(server: Any, **options: str) -> DeltaSharingSource:
    """Return the format as Spark makes it."""
    fields = {field: str(value) for field, value in server.profile.items()}
    return DeltaSharingSource({**fields, **options})


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """Return the rows in order, with the times in milliseconds, as Spark's own source has them."""
    found = frame.selectExpr("path", "unix_millis(modificationTime)", "length", "content").collect()
    return sorted(tuple(row) for row in found)


def paths(frame: Any) -> list[str]:
    return sorted(row.path for row in frame.select("path").collect())


def by_spark(spark: Any, folder: pathlib.Path) -> list[tuple[Any, ...]]:
    """Return what Spark's own source reads from a directory, and the empty files, which it leaves out."""
    frame = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(str(folder))
    start = len(f"file:{folder.as_posix()}/") + 1
    decoded = frame.selectExpr(f"substring(path, {start}) AS path", "modificationTime", "length", "content")
    empty = [(path, (folder / path).stat().st_mtime_ns // 10**6, 0, b"") for path in CONTENTS if not CONTENTS[path]]
    return sorted([*rows(decoded), *empty])


ASSETS: dict[str, tuple[str, dict[str, str], Callable[[Any], Any]]] = {
    "volume": ("s.d.v", {}, lambda client: client.volume("s.d.v")),
    "skill-one": ("s.d.skill-one", {"asset": "skill"}, lambda client: client.skill("s.d.skill-one")),
    "model/1": ("s.d.m", {"asset": "model", "modelVersion": "1"}, lambda client: client.model("s.d.m").version(1)),
    "model/2": ("s.d.m", {"asset": "model", "modelAlias": "best"}, lambda client: client.model("s.d.m").alias("best")),
}


@pytest.mark.parametrize("asset", ASSETS)
def test_rows_are_those_of_binary_file(spark: Any, shared: Any, asset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, options, of_client = ASSETS[asset]
    expected = by_spark(spark, shared.root / asset)
    assert len(expected) == len(CONTENTS) + 1

    with ds.SharingClient(shared.profile) as client:
        frames = [of_client(client).to_spark(spark)]
        if HAS_DATA_SOURCES:
            frames.append(by_format(spark, shared, name, **options))
            monkeypatch.setattr(to_spark, "HAS_DATA_SOURCES", False)
            frames.append(of_client(client).to_spark(spark))
        for frame in frames:
            assert (
                frame.schema.simpleString()
                == "struct<path:string,modificationTime:timestamp,length:bigint,content:binary>"
            )
            assert rows(frame) == expected


CONDITIONS = [
    "path LIKE 'b/%' AND length > 1",
    "length IN (1, 2) OR path = 'a.txt'",
    "NOT length > 3",
    "modificationTime < '2010-01-01'",
    "modificationTime > timestamp_millis(1000000000000)",
    "modificationTime = timestamp_seconds(1000000000)",
    "content IS NOT NULL AND length < 5",
    "content = X'6A6A'",
    "content = X'6A6A' OR length = 4",
    "octet_length(content) = length AND path LIKE '%.txt'",
    "path IS NULL",
]


@pytest.fixture(scope="module")
def both(spark: Any, shared: Any) -> Iterator[tuple[Any, Any]]:
    """Two frames of the same files: of a volume, and of rows in Spark."""
    with ds.SharingClient(shared.profile) as client:
        frame = client.volume("s.d.v").to_spark(spark)
        yield frame, spark.createDataFrame(frame.collect(), frame.schema).cache()


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_choose_the_rows_that_spark_chooses(both: tuple[Any, Any], condition: str) -> None:
    found, expected = (paths(frame.where(condition)) for frame in both)
    assert found == expected
    assert both[0].where(condition).count() == len(expected)


@needs_format
@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("s.d.v/b", {}, ["b/c/empty", "b/c/y.jpg", "b/x.png", "b/z é+#%.txt"]),
        ("s.d.v/b", {"recursiveFileLookup": "false"}, ["b/x.png", "b/z é+#%.txt"]),
        ("s.d.v/b/x.png", {}, ["b/x.png"]),
        ("s.d.v", {"pathGlobFilter": "*.{jpg,png}"}, ["b/c/y.jpg", "b/x.png"]),
        ("s.d.v", {"pathGlobFilter": "b/*.png"}, ["b/x.png"]),
        ("s.d.v", {"pathGlobFilter": '["*.jpg", "*.md"]'}, ["SKILL.md", "b/c/y.jpg"]),
        ("s.d.v", {"pathGlobExclude": "*.{jpg,png,md}"}, ["a.txt", "b/c/empty", "b/z é+#%.txt"]),
        ("s.d.v", {"modifiedBefore": "2001-09-09T01:46:41"}, ["a.txt"]),
        ("s.d.v", {"modifiedBefore": "2001-09-09T01:46:40"}, []),
        ("s.d.v", {"modifiedAfter": "2001-09-09T01:46:40", "pathGlobFilter": "*.txt"}, ["b/z é+#%.txt"]),
        ("s.d.v", {"filter": "length = 2 OR path = 'a.txt'"}, ["a.txt", "b/c/y.jpg"]),
        ("s.d.v", {"columns": "path", "limit": "0"}, []),
    ],
)
def test_options_choose_files(shared: Any, name: str, options: dict[str, str], expected: list[str]) -> None:
    source = source_of(shared, path=name, asset="volume", **options)
    reader = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert sorted(path for batch in batches for path in batch["path"].to_pylist()) == expected


def test_arguments_choose_files(spark: Any, shared: Any) -> None:
    with ds.SharingClient(shared.profile) as client:
        volume = client.volume("s.d.v")
        arguments = {"path": "b", "pattern": ["*.txt", "c/*"], "exclude": "empty"}

        assert paths(volume.to_spark(spark, **arguments)) == sorted(file.path for file in volume.files(**arguments))
        assert paths(volume.to_spark(spark, "b", recursive=False, columns=["path"])) == ["b/x.png", "b/z é+#%.txt"]
        assert volume.to_spark(spark, columns=["length"]).columns == ["length"]
        with pytest.raises(ds.UsageError, match="Expected a path"):
            volume.to_spark(spark, "../x")
        with pytest.raises(ds.UsageError, match="at least one pattern"):
            volume.to_spark(spark, pattern=[])
        with pytest.raises(ds.NotFoundError, match=r"volume s\.d\.none"):
            client.volume("s.d.none").to_spark(spark)


@needs_format
@pytest.mark.parametrize(
    ("options", "path", "message"),
    [
        ({"asset": "table"}, "s.d.v", "one of 'volume', 'skill', 'model'"),
        ({"asset": "volume"}, "s.d", "Expected a volume as share.schema.volume"),
        ({"asset": "volume"}, "s.d.v/../x", "Expected a path"),
        ({"asset": "volume"}, "s.d.w", "Did you mean 's.d.v'"),
        ({"asset": "model"}, "s.d.m", "needs option 'modelVersion' or option 'modelAlias'"),
        ({"asset": "model", "modelAlias": "worst"}, "s.d.m", "worst"),
        ({"asset": "volume", "modelVersion": "1"}, "s.d.v", "Found 'modelVersion'"),
        ({"asset": "volume", "versionAsOf": "1"}, "s.d.v", "Option 'versionAsOf' is for tables"),
        ({"asset": "volume", "pathGlobFilter": "{a,b}" * 10}, "s.d.v", "at most 1000 alternatives"),
        ({"asset": "volume", "filter": "content IS NULL"}, "s.d.v", "not by 'content'"),
        ({"pathGlobFilter": "*.png"}, "s.d.v", "add option 'asset'"),
    ],
)
def test_wrong_options_are_refused(shared: Any, options: dict[str, str], path: str, message: str) -> None:
    with pytest.raises(ds.DeltaSharingError, match=message):
        source_of(shared, path=path, **options).schema()


@needs_format
def test_files_are_not_for_streams(spark: Any, shared: Any, tmp_path: pathlib.Path) -> None:
    fields = {field: str(value) for field, value in shared.profile.items()}
    stream = spark.readStream.format("deltaSharing").options(**fields, asset="volume").load("s.d.v")
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(Exception, match="Option 'asset' is not for streams"):
        query.trigger(availableNow=True).start().awaitTermination(120)


# === Requests ===


@pytest.fixture
def by_url(tmp_path: pathlib.Path) -> Iterator[Station]:
    """A volume whose server provides URLs, so that the format can read it without settings of a store."""
    with station(simulated(URLS), tmp_path) as at:
        yield at


def asked(at: Station, run: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of ``run``, and the number of its requests for content."""
    before = len(at.proxy.requests)
    result = run()
    return result, sum(not request.is_listing for request in at.proxy.requests[before:])


@needs_format
def test_only_needed_content_is_requested(spark: Any, by_url: Station) -> None:
    frame = by_url.client.volume(VOLUME).to_spark(spark)
    total = sum(map(len, FILES.values()))

    assert asked(by_url, lambda: paths(frame)) == (sorted(FILES), 0)
    assert asked(by_url, frame.count) == (len(FILES), 0)
    assert asked(by_url, lambda: frame.selectExpr("sum(length)").collect()[0][0]) == (total, 0)
    small = frame.where("length < 10 AND path LIKE 'b/%'").select("content")
    assert asked(by_url, lambda: [bytes(row.content) for row in small.collect()]) == ([b"", b"z"], 1)
    # An empty file has no content to request.
    content, count = asked(by_url, lambda: {row.path: bytes(row.content) for row in frame.collect()})
    assert content == FILES
    assert count == len(FILES) - 1


def test_named_columns_need_no_push_down(spark: Any, tmp_path: pathlib.Path) -> None:
    """The settings of a store, such as its endpoint, cannot be options of the format, so the frame is planned."""
    with station(simulated(S3), tmp_path) as at:
        volume = at.client.volume(VOLUME)
        narrow = volume.to_spark(spark, columns=["path", "length"])
        listed = asked(at, lambda: sorted(map(tuple, narrow.collect())))
        assert listed == (sorted((path, len(content)) for path, content in FILES.items()), 0)
        assert {row.path: bytes(row.content) for row in volume.to_spark(spark).collect()} == FILES


def test_times_that_are_not_stated_are_null(spark: Any, by_url: Station) -> None:
    frame = by_url.client.volume(VOLUME).to_spark(spark, columns=["modificationTime"])
    assert {row.modificationTime for row in frame.collect()} == {None}


@needs_format
def test_credentials_are_in_tasks_only(spark: Any, shared: Any) -> None:
    token = shared.profile["bearerToken"].encode()
    with ds.SharingClient(shared.profile) as client:
        frame = client.volume("s.d.v").to_spark(spark)
        for one in (frame, frame.where("length > 1"), by_format(spark, shared)):
            common, own = sent(spark, one)
            assert token in own
            assert token not in common
            assert b"delta_sharing_client" in common
            assert shared.profile["bearerToken"] not in one._jdf.queryExecution().toString()


# === Parts, without Spark ===


def parsed(at: Station, **options: str) -> SparkOptions:
    rest = at.client.volume(VOLUME).rest
    text = {**(session_credentials.fields_of(rest.profile) or {}), "path": VOLUME, "asset": "volume"}
    found = SparkOptions.parse({**text, **options})
    limits = {"storage_options": at.client.volume(VOLUME).options.storage_options, "max_attempts": 2}
    return dataclasses.replace(found, limits={**found.limits, **limits})


def read(part: file_rows.FilesPart) -> dict[str, bytes]:
    with pickle.loads(pickle.dumps(part)).read() as batches:
        return {row["path"]: row["content"] for batch in batches for row in batch.to_pylist()}


def contents(parts: list[file_rows.FilesPart]) -> dict[str, bytes]:
    return {path: content for part in parts for path, content in read(part).items()}


@pytest.fixture
def stored(tmp_path: pathlib.Path) -> Iterator[tuple[Station, SimulatedStore]]:
    store = SimulatedStore(S3)
    with station(simulated(S3, store), tmp_path) as at:
        yield at, store


def plan(at: Station, **options: str) -> list[file_rows.FilesPart]:
    planned = file_rows.plan_files(parsed(at, **options), 0, ["path", "content"], LEAST_PARTITION)
    return [one.part for one in planned]


def test_parts_have_similar_sizes(stored: tuple[Station, SimulatedStore]) -> None:
    at, store = stored
    many = {f"many/{number:03}": bytes(100_000) for number in range(60)}
    store.objects.update({f"{FOLDER}/{path}": content for path, content in many.items()})

    planned = file_rows.plan_files(parsed(at, parallelism="4", path=f"{VOLUME}/many"), 0, ["content"], LEAST_PARTITION)
    assert sorted(one.rows for one in planned) == [14, 14, 16, 16]
    assert contents([one.part for one in planned]) == many
    tiny = file_rows.plan_files(parsed(at, parallelism="4"), 0, ["path"], LEAST_PARTITION)
    assert [one.rows for one in tiny] == [len(FILES) + 60]


def test_rows_arrive_in_batches_of_limited_size(
    stored: tuple[Station, SimulatedStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_rows, "_BATCH_BYTES", 250_000)
    monkeypatch.setattr(file_rows, "_BYTES_AHEAD", 150_000)
    at, store = stored
    sizes = [100_000, 100_000, 100_000, 0, 0, 300_000, 1, 1]
    store.objects.update({f"{FOLDER}/many/{n}": bytes([n]) * size for n, size in enumerate(sizes)})

    (part,) = plan(at, path=f"{VOLUME}/many", parallelism="1")
    with part.read() as batches:
        lengths = [batch.column("length").to_pylist() for batch in batches]
    assert lengths == [[100_000, 100_000], [100_000, 0, 0], [300_000], [1, 1]]
    assert read(part) == {f"many/{n}": bytes([n]) * size for n, size in enumerate(sizes)}


@pytest.mark.parametrize("kind", ["gone", "other content", "other size"])
def test_file_that_is_not_as_listed_is_an_error(stored: tuple[Station, SimulatedStore], kind: str) -> None:
    at, store = stored
    parts = plan(at)
    content = FILES[LARGE]
    changed = {"gone": None, "other content": content[::-1], "other size": content + b"1"}[kind]
    if changed is None:
        del store.objects[f"{FOLDER}/{LARGE}"]
    else:
        store.objects[f"{FOLDER}/{LARGE}"] = changed

    with pytest.raises(ds.DataError, match="large file") as caught:
        contents(parts)
    assert "volume s.d.v" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_file_too_large_for_a_value_is_named(
    stored: tuple[Station, SimulatedStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    at, _ = stored
    monkeypatch.setattr(file_rows, "MOST_BYTES", 299_999)
    (part,) = plan(at, parallelism="1")
    before = len(at.proxy.requests)

    with pytest.raises(ds.DataError, match=r"'b/large file\+é.bin' of volume s.d.v has 300000 bytes"):
        read(part)
    assert not any("large" in request.path for request in at.proxy.requests[before:])
    (rest,) = plan(at, filter="length < 300000", parallelism="1")
    assert read(rest) == {path: content for path, content in FILES.items() if path != LARGE}


def test_names_that_cannot_be_requested_are_listed(stored: tuple[Station, SimulatedStore]) -> None:
    at, store = stored
    store.objects[f"{FOLDER}/b/../odd"] = b"odd"
    (listed,) = file_rows.plan_files(parsed(at), 0, ["path"], LEAST_PARTITION)
    with listed.part.read() as batches:
        assert "b/../odd" in {path for batch in batches for path in batch.column("path").to_pylist()}

    with pytest.raises(ds.TransportError, match=r"'b/\.\./odd' of volume s.d.v .*cannot be requested"):
        contents(plan(at))
    assert contents(plan(at, pathGlobExclude="odd")) == FILES


def test_early_end_of_a_task_ends_its_requests(
    stored: tuple[Station, SimulatedStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_rows, "_BATCH_BYTES", 30)
    at, store = stored
    store.objects.update({f"{FOLDER}/many/{n:03}": bytes(10) for n in range(100)})
    (part,) = plan(at, path=f"{VOLUME}/many", parallelism="1", maxPartitionBytes="1g")

    def run() -> int:
        with part.read() as batches:
            return int(next(batches).num_rows)

    assert run() == 3
    assert len(contents([part])) == 100
    # The first run began no more than the files ahead of those that it used.
    assert sum("/many/" in request.path for request in at.proxy.requests) <= 3 + 1 + file_rows._FILES_AHEAD + 100


def test_credentials_are_renewed_in_tasks(stored: tuple[Station, SimulatedStore]) -> None:
    at, store = stored
    parts = plan(at)
    store.expired.add(f"{SECRET}-1")
    assert contents(parts) == FILES


@pytest.mark.skipif(os.name == "nt", reason="names of files are Unicode there")
def test_name_that_is_no_text_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    (tmp_path / "good.txt").write_bytes(b"x")
    with open(os.fsencode(tmp_path) + b"/bad-\xff.txt", "wb"):
        pass
    with mock_server.running(volumes={"s.d.v": tmp_path}) as server:
        text = {field: str(value) for field, value in server.profile.items()}
        options = {**text, "path": "s.d.v", "asset": "volume"}
        with pytest.raises(ds.DataError, match="'pathGlobExclude'"):
            file_rows.plan_files(SparkOptions.parse(options), 0, ["path"], LEAST_PARTITION)
        options["pathGlobExclude"] = "bad-*"
        assert len(file_rows.plan_files(SparkOptions.parse(options), 0, ["path"], LEAST_PARTITION)) == 1

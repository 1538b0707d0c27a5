"""Files of assets are listed, opened, and read by other libraries, from a local directory and from S3."""

from __future__ import annotations

import io
import pickle
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.assets import stream
from delta_sharing_client.redact import Secret
from mock_server.s3 import S3Settings
from tests.s3 import KEYS, REGION, Bucket, s3_bucket

QUICK = ds.ReadOptions(max_attempts=2, max_retry_seconds=1)
LARGE = random.Random(7).randbytes(3_000_000)


def parquet(numbers: list[int]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"number": numbers}), out)
    return out.getvalue()


FILES = {
    "a.csv": b"id,name\n1,lamp\n2,chair\n",
    "deep/er/b.txt": "Gr\u00fc\u00dfe\n".encode(),
    "deep/c.pdf": b"%PDF",
    "empty": b"",
    "large.bin": LARGE,
    "table/part=1/x.parquet": parquet([1, 2]),
    "table/part=2/y.parquet": parquet([3]),
    "with space/100% \u00e9.txt": b"odd",
}


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_bucket() as bucket_:
        yield bucket_


@pytest.fixture(scope="module", params=["local", "s3"])
def volume(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A volume with ``FILES``."""
    if request.param == "local":
        root = tmp_path_factory.mktemp("a volume %41")
        for path, data in FILES.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
        where, options, settings = str(root), QUICK, None
    else:
        bucket = request.getfixturevalue("bucket")
        for path, data in FILES.items():
            bucket.put(f"in/{path}", data)
        where, settings = f"s3://{bucket.name}/in", s3_settings(bucket)
        options = ds.ReadOptions(max_attempts=2, max_retry_seconds=1, storage_options=bucket.storage_options)
    with (
        mock_server.running(volumes={"s.d.files": where}, s3=settings) as server,
        ds.SharingClient(server.profile, options=options) as client,
    ):
        yield client.volume("s.d.files")


def s3_settings(bucket: Bucket) -> S3Settings:
    return S3Settings(
        endpoint=bucket.endpoint,
        region=REGION,
        access_key_id=KEYS["aws_access_key_id"],
        secret_access_key=Secret(KEYS["aws_secret_access_key"]),
    )


def paths(volume: Any, *arguments: Any, **options: Any) -> list[str]:
    return sorted(file.path for file in volume.files(*arguments, **options))


def test_files_are_listed_with_sizes(volume: Any) -> None:
    sizes = {file.path: file.size for file in volume.files()}

    assert sizes == {path: len(data) for path, data in FILES.items()}
    assert all(file.etag and file.modified.tzinfo for file in volume.files())


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        (("deep",), {}, ["deep/c.pdf", "deep/er/b.txt"]),
        (("/deep/",), {"recursive": False}, ["deep/c.pdf"]),
        (("",), {"recursive": False}, ["a.csv", "empty", "large.bin"]),
        (("", "*.txt"), {}, ["deep/er/b.txt", "with space/100% \u00e9.txt"]),
        (("deep", "er/*"), {}, ["deep/er/b.txt"]),
        (("", "table/**/*.parquet"), {}, ["table/part=1/x.parquet", "table/part=2/y.parquet"]),
        (("", "[ae]*"), {"recursive": False}, ["a.csv", "empty"]),
        (("", "/*.csv"), {}, ["a.csv"]),
        (("", "/*.txt"), {}, []),
        (("", ["deep/", "*.csv"]), {}, ["a.csv", "deep/c.pdf", "deep/er/b.txt"]),
        (("", "/deep/er/"), {}, ["deep/er/b.txt"]),
        (("deep", "er/"), {}, ["deep/er/b.txt"]),
        (("", None), {"exclude": ["deep/", "table/", "[ew]*"]}, ["a.csv", "large.bin", "with space/100% \u00e9.txt"]),
        (("a.csv",), {}, ["a.csv"]),
        (("a.csv", "*.txt"), {}, []),
    ],
)
def test_files_are_selected_by_directory_and_pattern(
    volume: Any, arguments: tuple[str, ...], options: dict[str, bool], expected: list[str]
) -> None:
    assert paths(volume, *arguments, **options) == expected


@pytest.mark.parametrize("path", ["none", "a.csv/x", "deep/er/b.txt/"])
def test_error_names_the_missing_file(volume: Any, path: str) -> None:
    if path.endswith("/"):
        assert volume.read_bytes(path) == FILES[path.rstrip("/")]
        return
    for call in (lambda: list(volume.files(path)), lambda: volume.read_bytes(path), lambda: volume.open(path)):
        with pytest.raises(ds.NotFoundError, match=f"'{path}' in volume s.d.files"):
            call()


@pytest.mark.parametrize("call", ["stat", "open", "read_bytes", "read_text"])
def test_reading_a_directory_as_a_file_is_an_error(volume: Any, call: str) -> None:
    with pytest.raises(ds.NotFoundError, match=r"'deep/er' of volume s\.d\.files is a directory.*'files\(\)'"):
        getattr(volume, call)("deep/er")


@pytest.mark.parametrize("path", ["../x", "a/../../x", "a//b", "./a", "a\0b", 5])
def test_malformed_paths_are_refused_before_any_request(volume: Any, path: Any) -> None:
    for call in (volume.files, volume.read_bytes, volume.open, volume.stat):
        with pytest.raises((ds.UsageError, TypeError)):
            call(path)
    for call in (volume.read_bytes, volume.open):
        with pytest.raises(ds.UsageError, match="Expected the path of a file"):
            call("")
    with pytest.raises(ds.UsageError, match="Expected a pattern"):
        volume.files(pattern="a**b")


def test_bytes_and_text_are_read(volume: Any) -> None:
    assert {path: volume.read_bytes(path) for path in FILES} == FILES
    assert volume.read_text("deep/er/b.txt") == "Gr\u00fc\u00dfe\n"
    assert volume.read_text("deep/er/b.txt", "latin-1") == FILES["deep/er/b.txt"].decode("latin-1")
    with pytest.raises(ds.DataError, match=r"invalid bytes at position \d+ of the file 'large\.bin'"):
        volume.read_text("large.bin")


# --- streams ---


def test_stream_behaves_like_a_local_file(volume: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_FIRST_BLOCK", 1000)
    monkeypatch.setattr(stream, "_LARGEST_BLOCK", 300_000)
    draw = random.Random(3)
    expected = io.BytesIO(LARGE)
    with volume.open("large.bin") as found:
        assert found.readable()
        assert found.seekable()
        assert not found.writable()
        assert found.raw.size == len(LARGE)
        for _ in range(60):
            whence, span = draw.choice([(0, len(LARGE) + 99), (1, 5000), (2, -5000)])
            offset = draw.randint(min(0, span), max(0, span))
            if draw.random() < 0.5:
                assert found.seek(offset, whence) == expected.seek(offset, whence)
            length = draw.choice([0, 1, 10, 4096, 70_000, 500_000])
            assert found.read(length) == expected.read(length)
            assert found.tell() == expected.tell()
        expected.seek(2_990_000)
        found.seek(2_990_000)
        assert found.read() == expected.read()
        assert (found.read(), found.read(1)) == (b"", b"")
    with pytest.raises(ValueError, match="closed"):
        found.read(1)


def test_stream_can_be_read_as_text_and_not_pickled(volume: Any) -> None:
    with io.TextIOWrapper(volume.open("deep/er/b.txt"), "utf-8") as lines:
        assert list(lines) == ["Gr\u00fc\u00dfe\n"]
    with volume.open("a.csv") as stream, pytest.raises(TypeError, match="pickled"):
        pickle.dumps(stream.raw)


# --- other libraries ---


def test_libraries_read_files_through_the_file_system(volume: Any) -> None:
    fs = volume.filesystem()

    with fs.open("a.csv") as file:
        assert pd.read_csv(file)["name"].tolist() == ["lamp", "chair"]
    with fs.open("a.csv", "rt") as text:
        assert text.readline() == "id,name\n"
    with fs.open("table/part=2/y.parquet") as file:
        assert pl.read_parquet(file)["number"].to_list() == [3]
    rows = pyarrow.dataset.dataset("table", filesystem=fs, format="parquet", partitioning="hive").to_table()
    assert sorted(zip(rows["number"].to_pylist(), rows["part"].to_pylist(), strict=True)) == [(1, 1), (2, 1), (3, 2)]
    with duckdb.connect() as connection:
        connection.register_filesystem(fs)
        returned = connection.sql("SELECT sum(number) FROM 'delta-sharing://table/*/*.parquet'").fetchall()
    assert returned == [(6,)]


def test_pickled_assets_and_file_systems_read(volume: Any) -> None:
    volume.read_bytes("a.csv")
    again, fs = pickle.loads(pickle.dumps((volume, volume.filesystem())))
    assert again.read_bytes("deep/c.pdf") == fs.cat_file("deep/c.pdf") == b"%PDF"


def test_threads_request_the_credentials_of_an_asset_once(bucket: Bucket) -> None:
    bucket.put("shared/x", b"1")
    options = ds.ReadOptions(storage_options=bucket.storage_options)
    with (
        mock_server.running(volumes={"s.d.files": f"s3://{bucket.name}/shared"}, s3=s3_settings(bucket)) as server,
        ds.SharingClient(server.profile, options=options) as client,
    ):
        volume = client.volume("s.d.files")
        volume._files_location()
        server.reset_stats()
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(volume.read_bytes, ["x"] * 32)) == [b"1"] * 32

        assert server.stats()["requests"] == {"temporary-volume-credentials": 1}


def test_asset_reprs_and_errors_show_no_secrets(volume: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="delta_sharing_client"):
        texts = [repr(volume), repr(volume.filesystem()), repr(volume.open("a.csv").raw), repr(volume._directory)]
        for call in (volume.read_bytes, volume.open):
            with pytest.raises(ds.NotFoundError) as caught:
                call("none")
            texts.append(f"{caught.value} {caught.value!r}")
    texts.append(caplog.text)
    renewal = getattr(volume._directory.place, "renewal", None)
    if renewal is not None:
        for secret in renewal.current().secrets.values():
            assert not [text for text in texts if secret.reveal() in text]

"""A short run of the Iceberg metadata fuzzer in every test run; long runs are started by hand."""

from __future__ import annotations

import msgspec
import pytest

from delta_sharing_client.errors import DataError
from delta_sharing_client.options import ReadOptions
from tests.fuzz.test_fuzz_wire import seed_of_this_run
from tests.iceberg.lake import FOLDER, Lake, metadata_of, rows
from tools.fuzz import iceberg as fuzz_iceberg
from tools.fuzz.iceberg import KINDS, TABLES, fuzz, main, read
from tools.fuzz.wire import Failed

INPUTS = 25


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_metadata_gives_rows_or_an_error(kind: str) -> None:
    seed = seed_of_this_run()
    try:
        counts = fuzz(kind, seed=seed, inputs=INPUTS)
    except Failed as failure:
        pytest.fail(f"seed {seed}: {failure}")

    assert counts.total() == INPUTS
    # The damage must have an effect.
    assert counts["refused"] + counts["malformed"] >= 2
    if kind == "cut":
        assert counts["refused"] == INPUTS


@pytest.mark.parametrize("name", TABLES)
def test_fuzzer_reads_all_rows_of_undamaged_tables(name: str) -> None:
    assert read(name, metadata_of(name), Lake(FOLDER, ReadOptions())) == rows(name, "current").num_rows


def test_error_names_a_manifest_list_with_a_nul_in_its_path() -> None:
    metadata = msgspec.json.decode(metadata_of("plain"))
    for snapshot in metadata["snapshots"]:
        snapshot["manifest-list"] = "s3://lake/plain/metadata/a\0b.avro"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TABLES, "plain", "id > 1")

        with pytest.raises(DataError, match="does not exist") as failed:
            read("plain", msgspec.json.encode(metadata), Lake(FOLDER, ReadOptions()))

    assert failed.value.file_id == "s3://lake/plain/metadata/a\0b.avro"


def test_fuzzer_reports_a_failure_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(name: str, metadata: bytes, place: Lake) -> int:
        if type(place) is Lake:
            return 1
        raise KeyError("no such key")

    monkeypatch.setattr(fuzz_iceberg, "read", broken)
    assert main(["--kind", "metadata", "--seconds", "1", "--seed", "7"]) == 1
    shown = capsys.readouterr().out
    assert "KeyError" in shown
    assert "--kind metadata --one 7" in shown

"""The names under which a directory of tables is shared."""

from __future__ import annotations

from pathlib import Path

import pytest

from mock_server import tables
from mock_server.catalog import AssetEntry, AssetKind, from_directory, from_mapping, unique_assets
from mock_server.errors import ApiError, ConfigError
from tests.unit.mock_server.helpers import write_plain


def test_relative_path_is_made_absolute_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plain(tmp_path / "t")
    monkeypatch.chdir(tmp_path)
    (entry,) = from_mapping({"s.d.t": "t"}).tables
    assert entry.location == tmp_path.resolve() / "t"


def make(root: Path, *tables: str) -> Path:
    for table in tables:
        (root / table / "_delta_log").mkdir(parents=True)
    return root


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["a", "b"], ["default.default.a", "default.default.b"]),
        (["s/d/t", "s/d/u"], ["s.d.t", "s.d.u"]),
        (["s/d/t", "a"], ["default.default.a", "s.d.t"]),
        (["a/delta", "b/delta"], ["default.default.a", "default.default.b"]),
        (["d/t", "d/u"], ["default.d.t", "default.d.u"]),
        (["s/d/t/data"], ["s.d.t"]),
        (["s/d/t/x", "s/d/t/y"], ["s.d.t.x", "s.d.t.y"]),
        (["my table/x"], ["default.default.my table"]),
    ],
)
def test_directories_become_schemas_and_tables(tmp_path: Path, folders: list[str], names: list[str]) -> None:
    catalog = from_directory(make(tmp_path, *folders))
    assert [table.full_name for table in catalog.tables] == names


def test_root_directory_may_be_a_table(tmp_path: Path) -> None:
    (table,) = from_directory(make(tmp_path, "orders") / "orders").tables
    assert (table.full_name, table.location) == ("default.default.orders", (tmp_path / "orders").resolve())


def test_directories_inside_a_table_are_not_tables(tmp_path: Path) -> None:
    make(tmp_path, "a", "a/_change_data/x", ".hidden/b")
    assert [table.name for table in from_directory(tmp_path).tables] == ["a"]


def test_links_are_followed_but_not_in_a_circle(tmp_path: Path) -> None:
    make(tmp_path, "s/d/t", "outside/a/x", "outside/a/y")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "s").symlink_to(tmp_path / "s")
    (tmp_path / "lake" / "b").symlink_to(tmp_path / "outside" / "a")
    for name in ("one", "two"):
        (tmp_path / "lake" / name).symlink_to(tmp_path / "lake")
        (tmp_path / "s" / "d" / name).symlink_to(tmp_path / "lake")
    names = [table.full_name for table in from_directory(tmp_path / "lake").tables]
    assert names == ["default.b.x", "default.b.y", "s.d.t"]


@pytest.mark.parametrize("path", ["none", "file", "empty"])
def test_directory_without_tables_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError):
        from_directory(tmp_path / path)


def test_two_tables_with_the_same_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Two tables are called"):
        from_directory(make(tmp_path, "a", "A"))


def test_mapping_accepts_full_and_short_table_names() -> None:
    catalog = from_mapping({"my.share.d.t": "x", "u": "y"})
    assert [(table.share, table.schema, table.name) for table in catalog.tables] == [
        ("my.share", "d", "t"),
        ("default", "default", "u"),
    ]
    with pytest.raises(ConfigError, match=r"share\.schema\.table"):
        from_mapping({"a.b": "x"})


def test_ids_are_stable_across_starts_and_unique_per_table() -> None:
    first, second = (from_mapping({"s.d.t": "x", "s.d.u": "y"}).tables for _ in range(2))
    assert [table.id for table in first] == [table.id for table in second]
    assert first[0].id != first[1].id


@pytest.mark.parametrize("names", [("x", "d", "t"), ("s", "x", "t"), ("s", "d", "x")])
def test_unknown_names_are_404(names: tuple[str, str, str]) -> None:
    with pytest.raises(ApiError) as caught:
        from_mapping({"s.d.t": "x"}).table(*names)
    assert caught.value.status == 404


def asset(kind: AssetKind, name: str) -> AssetEntry:
    return AssetEntry(kind, "s", "d", name, None, f"id of {name}")


def test_two_assets_with_the_same_kind_and_name_are_refused() -> None:
    volume, model = AssetKind.VOLUME, AssetKind.MODEL
    assert len(unique_assets([asset(volume, "a"), asset(volume, "b"), asset(model, "a")])) == 3
    with pytest.raises(ConfigError, match=r"Two .* are called 's\.d\.A'"):
        unique_assets([asset(volume, "a"), asset(model, "a"), asset(volume, "A")])


def test_cache_evicts_the_oldest_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_CACHED_SNAPSHOTS", 2)
    write_plain(tmp_path / "t")
    (entry,) = from_mapping({"s.d.t": str(tmp_path / "t")}).tables
    table = tables.SharedTable(entry)
    sizes = {version: table.size(table.snapshot(version)) for version in (0, 1, 0, 2)}
    assert [*table._snapshots] == [0, 2]
    assert table._sizes == {0: sizes[0], 2: sizes[2]}
    evicted = table.snapshot(0)
    assert table.size(table.snapshot(1)) == sizes[1] > sizes[0]
    table.snapshot(2)
    assert table.size(evicted) == sizes[0]

"""Files of a snapshot as a server lists them: duplicates and contradictions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from delta_sharing_client.delta import listed_files as listed_module
from delta_sharing_client.delta.actions import AddFile, DeletionVectorDescriptor, RemoveFile, SharedFile
from delta_sharing_client.delta.listed_files import ListedFiles, kept
from delta_sharing_client.errors import ProtocolError

VECTOR = DeletionVectorDescriptor("u", "x", 34, 1, 1)


def file(
    name: str,
    size: int = 3,
    *,
    file_id: str | None = None,
    signature: str = "1",
    deletion_vector: DeletionVectorDescriptor | None = None,
) -> SharedFile:
    add = AddFile(f"https://h/{name}?sig={signature}", {}, size, deletion_vector=deletion_vector)
    return SharedFile(add, file_id or name)


def names(files: list[SharedFile]) -> list[str]:
    return [file.action.path.partition("?")[0].rpartition("/")[2] for file in files]


# All names, at most one name, or no name is kept as a string. The others are kept as hashes.
@pytest.mark.parametrize("most", [100, 1, 0])
@pytest.mark.parametrize("vector", [None, VECTOR])
def test_file_with_a_different_signature_is_not_new(most: int, vector: DeletionVectorDescriptor | None) -> None:
    def signed(name: str, signature: str = "1") -> SharedFile:
        return file(name, signature=signature, deletion_vector=vector)

    listed = ListedFiles("s.s.t", 3, most)
    assert names(listed.new([signed("a"), signed("b")])) == ["a", "b"]
    assert names(listed.new([signed("b", "2"), signed("c"), signed("c", "3")])) == ["c"]
    assert listed.new([signed("a"), signed("b")]) == []
    assert listed.new([]) == []
    assert names(listed.new([signed("d")])) == ["d"]
    assert listed.new([signed("d", "2")]) == []
    assert (listed.files, listed.bytes) == (4, 12)


@pytest.mark.parametrize("most", [100, 1, 0])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    "other",
    [
        file("b", file_id="a"),
        file("a", size=4),
        file("a", deletion_vector=VECTOR),
        file("a", deletion_vector=replace(VECTOR, offset=2)),
    ],
    ids=["path", "size", "vector", "another vector"],
)
def test_two_files_with_the_same_id_are_refused(most: int, together: bool, other: SharedFile) -> None:
    first = file("a")
    if getattr(other.action.deletion_vector, "offset", None) == 2:
        first = file("a", deletion_vector=VECTOR)
    listed = ListedFiles("s.s.t", 3, most)
    page = [file("0"), first]
    if not together:
        assert listed.new(page) == page
        page = []
    with pytest.raises(ProtocolError, match="two files with this id and different paths") as caught:
        listed.new([*page, other])
    assert (caught.value.table, caught.value.version, caught.value.file_id) == ("s.s.t", 3, "a")


@pytest.mark.parametrize("most", [100, 0])
@pytest.mark.parametrize("together", [True, False])
def test_files_without_ids_are_distinguished_by_path(most: int, together: bool) -> None:
    """``/get?name=a`` and ``/get?name=b`` may be two files. If one were dropped, rows would be lost."""
    without_ids = [replace(file(name), file_id=None) for name in ("a", "b", "c")]
    listed = ListedFiles("s.s.t", 3, most)
    assert listed.new(without_ids) == without_ids
    other = replace(file("d"), file_id=None)
    pages = [[other, replace(file("d", signature="2"), file_id=None)]]
    if not together:
        pages = [[listed_file] for listed_file in pages[0]]
    *before, last = pages
    for page in before:
        assert listed.new(page) == page
    with pytest.raises(ProtocolError, match="two files with the same path and without an id were found"):
        listed.new(last)


@pytest.mark.parametrize("vector", [None, VECTOR])
def test_page_of_new_files_is_returned_unchanged(vector: DeletionVectorDescriptor | None) -> None:
    """Pages are compared as a whole, not file by file."""
    listed = ListedFiles("s.s.t", 3, 2)
    for page in (["a", "b"], ["c"], ["d", "e", "f"]):
        files = [file(name, deletion_vector=vector) for name in page]
        assert listed.new(files) is files


def test_number_of_names_kept_as_strings_is_limited() -> None:
    listed = ListedFiles("s.s.t", 3, 3)
    held = []
    for number in range(10):
        listed.new([file(str(number))])
        held.append(len(listed._held))
    assert held == [1, 2, 3, 0] * 2 + [1, 2]


def test_kept_files_share_equal_partition_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for remembered, dicts in ((2, 2), (1, 6)):
        monkeypatch.setattr(listed_module, "_REMEMBERED", remembered)
        files = [SharedFile(AddFile("a", {"p": "xy"[number % 2]}), str(number)) for number in range(6)]
        shared = kept([files[:3], [], files[3:]])
        assert shared == files
        assert [file.action.partition_values for file in shared] == [{"p": "x"}, {"p": "y"}] * 3
        assert len({id(file.action.partition_values) for file in shared}) == dicts
    (remove,) = kept([[SharedFile(RemoveFile("a"))]])
    assert remove.action.partition_values is None


def test_total_bytes_are_unknown_without_every_size() -> None:
    listed = ListedFiles("s.s.t", 3)
    listed.new([file("a", 0), file("b", 5)])
    assert listed.bytes == 5
    listed.new([file("c", -1), file("d", 7)])
    assert (listed.files, listed.bytes) == (4, None)
    listed.new([file("e", 7)])
    assert (listed.files, listed.bytes) == (5, None)


def test_removed_file_in_a_snapshot_is_refused() -> None:
    with pytest.raises(ProtocolError, match="a line of type 'RemoveFile' was found") as caught:
        ListedFiles("s.s.t", 3).new([file("a"), SharedFile(RemoveFile("b"))])
    assert (caught.value.table, caught.value.version) == ("s.s.t", 3)

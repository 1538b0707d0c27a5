"""Read volumes and tables with each fault that their place can have.

The table of the results in ``docs/reliability.md`` is generated from this. ``tests/stores/test_faults.py`` does the
same with the emulators and a server of S3.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Mapping

import pytest

import delta_sharing_client as ds
from mock_server.faults import FaultKind, Target
from tests.effort import sample
from tests.fault_proxy import ALL_FAULTS, STORE_FAULTS, forwarding
from tests.generated import check_generated
from tests.local_faults import MEANINGS
from tests.object_stores import AZURE, DIRECTORY, GOOGLE, S3, STORES, URLS, SimulatedStore
from tests.store_matrix import (
    FILES,
    FOLDER,
    LARGE,
    SECRET,
    UNUSED,
    USES,
    VOLUME,
    Cell,
    cells,
    outcomes,
    simulated,
    station,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
OF_FILES = ("read", "seek", "download")
ROWS = "read rows"
# A URL may lead to another one, as the URLs of tables may.
OF_URLS = {
    ("redirect", False): "right",
    ("redirect-elsewhere", False): "right",
    ("redirect-elsewhere", True): "right",
    ("bad-redirect", False): "ProtocolError",
    ("bad-redirect", True): "ProtocolError",
}
_SHOWN = {"right": "right", UNUSED: ""}


@pytest.fixture(scope="module")
def of_s3() -> dict[Cell, str]:
    return outcomes(simulated(S3), cells())


def test_faults_have_the_results_in_the_documentation(of_s3: dict[Cell, str]) -> None:
    by_url = outcomes(simulated(URLS), [cell for cell in cells(URLS) if cell.use == ROWS])
    directory = outcomes(simulated(DIRECTORY), cells(DIRECTORY))
    rows: dict[str, list[str]] = {}
    for fault in ALL_FAULTS:
        if any(_pair(fault, use, of_s3) for use in USES):
            row = [_uses(fault, of_s3), _files_by_url(fault), _rows_by_url(fault, by_url), _directory(fault, directory)]
            name = fault.doc.replace("VALUE", "N") if fault in STORE_FAULTS else f"`{fault.name}`"
            rows.setdefault(" | ".join(row), []).append(name)
    lines = ["| faults | stores | files by URL | rows by URL | directory |", "|---" * 5 + "|"]
    lines += [f"| {'; '.join(names)} | {row} |" for row, names in rows.items()]
    for results in (of_s3, by_url, directory):
        assert {str(cell): one for cell, one in results.items() if one == "wrong" or " " in one} == {}
    check_generated(ROOT / "docs" / "reliability.md", "stores", "\n".join(lines) + "\n")


def _pair(fault: FaultKind, use: str, results: Mapping[Cell, str]) -> str:
    """Return the results of a use if only the first response has a fault, and if all have it."""
    pair = [results[cell] for cell in (Cell(fault, use, False), Cell(fault, use, True)) if cell in results]
    return ", ".join(dict.fromkeys(filter(None, (_SHOWN.get(one, f"`{one}`") for one in pair))))


def _uses(fault: FaultKind, results: Mapping[Cell, str]) -> str:
    """Return each result of a fault with the uses that have it, or without them if it is the only one."""
    uses: dict[str, list[str]] = {}
    for use in USES:
        if pair := _pair(fault, use, results):
            uses.setdefault(pair, []).append(use)
    if len(uses) == 1:
        return next(iter(uses))
    return "; ".join(f"{pair} ({', '.join(names)})" for pair, names in uses.items())


def _files_by_url(fault: FaultKind) -> str:
    if fault.target is Target.API:
        return ""
    results = {Cell(fault, "read", always): OF_URLS.get((fault.name, always), "") for always in (False, True)}
    if not any(results.values()):
        return "as a store"
    return _pair(fault, "read", {cell: one or "TransportError" for cell, one in results.items()})


def _rows_by_url(fault: FaultKind, results: Mapping[Cell, str]) -> str:
    return "" if fault.target is Target.API else _pair(fault, ROWS, results)


def _directory(fault: FaultKind, results: Mapping[Cell, str]) -> str:
    return f"{MEANINGS[fault.name]}: {_uses(fault, results)}" if fault.name in MEANINGS else ""


@pytest.mark.parametrize(("kind", "first"), [(AZURE, 0), (GOOGLE, 1), (URLS, 2)])
def test_other_places_have_the_same_results(kind: str, first: int, of_s3: dict[Cell, str]) -> None:
    chosen = [cell for cell in cells(kind) if kind != URLS or cell.use in OF_FILES]
    results = outcomes(simulated(kind), list(sample(chosen, 4, first)))
    expected = {
        cell: OF_URLS.get((cell.fault.name, cell.always), of_s3[cell]) if kind == URLS else of_s3[cell]
        for cell in results
    }

    assert {str(cell): (one, expected[cell]) for cell, one in results.items() if one != expected[cell]} == {}


@pytest.mark.parametrize("kind", [*STORES, URLS])
def test_foreign_bodies_never_become_files(kind: str) -> None:
    """A web page in place of a file, as a login page of a network: also if the size of the file is not known before."""
    chosen = [cell for cell in cells() if cell.fault.name == "web-page" and cell.use in OF_FILES]

    assert set(outcomes(simulated(kind), chosen).values()) == {"DataError"}


@pytest.mark.parametrize("kind", STORES)
def test_listing_of_a_missing_bucket_is_not_empty(kind: str) -> None:
    """A copy of an empty listing would remove all files."""
    chosen = [cell for cell in cells() if cell.fault.name in ("not-found", "no-bucket") and cell.use == "list"]

    assert set(outcomes(simulated(kind), chosen).values()) == {"TransportError"}


@pytest.mark.parametrize("kind", STORES)
def test_expired_credentials_are_renewed_while_files_are_read(kind: str, tmp_path: pathlib.Path) -> None:
    """The refusal of each store, with its own status: the next credentials are used, and the old ones never again."""
    store = SimulatedStore(kind)
    with station(simulated(kind, store), tmp_path) as at:
        for number in range(1, 4):
            store.expired.add(f"{SECRET}-{number}")
            assert at.client.volume(VOLUME).read_bytes(LARGE) == FILES[LARGE]
            assert USES["list"].run(at.client, tmp_path)
        at.client.volume(VOLUME).download(tmp_path / "here")
    assert {path: (tmp_path / "here" / path).read_bytes() for path in FILES} == FILES


@pytest.mark.parametrize("kind", STORES)
def test_credentials_that_stay_expired_are_requested_once_more(kind: str, tmp_path: pathlib.Path) -> None:
    store = SimulatedStore(kind)
    store.expired.add(SECRET)
    with station(simulated(kind, store), tmp_path) as at:
        with pytest.raises(ds.AuthError):
            at.client.volume(VOLUME).read_bytes(LARGE)
        assert len(at.proxy.requests) == 2


@pytest.mark.parametrize("kind", STORES)
def test_corrupt_bytes_are_detected(kind: str, tmp_path: pathlib.Path) -> None:
    """A byte that a proxy flips: once, the file is downloaded again; always, there is an error and no file."""
    with station(simulated(kind), tmp_path) as at:
        at.proxy.set_fault("corrupt-body:1@data")
        at.client.volume(VOLUME).download(tmp_path / "once", LARGE)
        assert (tmp_path / "once" / LARGE).read_bytes() == FILES[LARGE]
        at.proxy.set_fault("corrupt-body@data")
        with pytest.raises(ds.DataError, match="checksum"):
            at.client.volume(VOLUME).download(tmp_path / "always", LARGE)
        assert not (tmp_path / "always" / LARGE).exists()


def test_names_with_odd_characters_pass_through_a_real_proxy(tmp_path: pathlib.Path) -> None:
    """Two proxies in a row: the path that is signed is the path that arrives."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(station(simulated(S3), tmp_path))
        store = simulated(S3)
        store.origin = forwarding(first.proxy.endpoint, keeps_host=True)
        second = stack.enter_context(station(store, tmp_path))
        assert second.client.volume(VOLUME).read_bytes(LARGE) == FILES[LARGE]
        assert first.proxy.requests[-1].path == second.proxy.requests[-1].path == f"/bucket/{FOLDER}/{_encoded(LARGE)}"


def _encoded(path: str) -> str:
    return path.replace(" ", "%20").replace("+", "%2B").replace("é", "%C3%A9")

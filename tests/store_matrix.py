"""Every fault of ``tests.fault_proxy``, once and permanently, in front of a store: what a user gets.

A result is ``right`` (exactly the files, or exactly the bytes) or the class of a ``DeltaSharingError``. Anything else
is a failure of the matrix: other bytes, other exceptions, a message with a secret, no end.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import itertools
import json
import pathlib
import queue
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import quote

import pyarrow as pa
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.assets import transfers
from delta_sharing_client.redact import Secret
from delta_sharing_client.storage import local
from mock_server import asset_files, catalog
from mock_server.faults import FaultKind, Target
from mock_server.running import bind, serving, uvicorn_config
from mock_server.s3 import S3Settings
from tests import local_faults
from tests.fault_proxy import ALL_FAULTS, FaultProxy, Origin, fault_proxy
from tests.object_stores import AZURE, DIRECTORY, GOOGLE, S3, URLS, SimulatedStore
from tests.tables import TableWriter, rows_of
from tests.time_limits import HANGS

SECRET = "planted"
FOLDER = "volumes/v"
LARGE = "b/large file+é.bin"
FILES = {
    "a.txt": b"text",
    LARGE: random.Random(7).randbytes(300_000),
    "b/c/empty": b"",
    "b/z": b"z",
}
TABLE, VOLUME = "s.d.t", "s.d.v"
IDS = list(range(40))
OPTIONS = ds.ReadOptions(
    max_attempts=2, max_retry_seconds=40.0, connect_timeout=5.0, read_timeout=2.5, total_timeout=60.0, progress=False
)
_LOCATIONS = {S3: "s3://bucket", AZURE: "abfss://bucket@account.dfs.core.windows.net", GOOGLE: "gs://bucket"}
# Values for faults that have no documented value, or whose documented value would take too long.
VALUES = {
    "cut-connection-after": "0",
    "slow": "9",
    "429-retry-after": "0",
    "error-body": "1000000",
}
# These end only with the deadline, so they get a short one.
ENDLESS = {"endless-names", "endless-continue", "repeat-page"}
_ALWAYS = 1_000_000
UNUSED = "-"
"""The result of a cell whose use sends no request that could have the fault."""
LEFT_OUT = {
    "replaced-after": "the proxy has the fault 'changed'",
    "throttle": "the result depends on the time; the proxy has the fault 'throttled'",
    "corrupt-body": "over plain HTTP, only a stated checksum detects it; test_corrupt_bytes_are_detected",
}


class Cell(NamedTuple):
    """A use of the store with a fault: ``use`` is a name of ``USES``."""

    fault: FaultKind
    use: str
    always: bool

    def __str__(self) -> str:
        return f"{self.fault.name}, {self.use}, {'always' if self.always else 'once'}"

    @property
    def text(self) -> str:
        """The fault as ``FaultProxy.set_fault`` reads it."""
        kind, target = self.fault, USES[self.use].target
        if kind.counts:
            return f"{kind.name}={self.count}@{target.value}"
        value = VALUES.get(kind.name, None if kind.default is None else f"{kind.default:g}")
        return f"{kind.name}{'' if value is None else f'={value}'}:{self.count}@{target.value}"

    @property
    def count(self) -> int:
        """The number of responses with the fault."""
        return _ALWAYS if self.always else 1


class Use(NamedTuple):
    """What is done, which requests have the fault, and a function that compares the result."""

    target: Target
    run: Callable[[ds.SharingClient, pathlib.Path], bool]


def _lists(client: ds.SharingClient, folder: pathlib.Path) -> bool:
    return sorted((file.path, file.size) for file in client.volume(VOLUME).files()) == sorted(
        (path, len(content)) for path, content in FILES.items()
    )


def _reads(client: ds.SharingClient, folder: pathlib.Path) -> bool:
    return _is_one_version(client.volume(VOLUME).read_bytes(LARGE), FILES[LARGE])


def _seeks(client: ds.SharingClient, folder: pathlib.Path) -> bool:
    with client.volume(VOLUME).open(LARGE) as stream:
        stream.seek(123_457)
        start = stream.read(1000)
        stream.seek(290_000)
        return _is_one_version(start + stream.read(), FILES[LARGE][123_457:124_457] + FILES[LARGE][290_000:])


def _downloads(client: ds.SharingClient, folder: pathlib.Path) -> bool:
    client.volume(VOLUME).download(folder / "here")
    return all(_is_one_version((folder / "here" / path).read_bytes(), content) for path, content in FILES.items())


def _reads_rows(client: ds.SharingClient, folder: pathlib.Path) -> bool:
    rows = client.table(TABLE).scan(filter="id >= 0").to_arrow()
    return sorted(rows["id"].to_pylist()) == IDS


def _is_one_version(data: bytes, content: bytes) -> bool:
    """Return whether ``data`` is ``content`` or one of the versions that the fault 'changed' makes of it."""
    shift = (data[0] - content[0]) % 256 if data and content else 0
    return data == bytes((byte + shift) % 256 for byte in content)


USES = {
    "list": Use(Target.API, _lists),
    "read": Use(Target.DATA, _reads),
    "seek": Use(Target.DATA, _seeks),
    "download": Use(Target.DATA, _downloads),
    "list a log": Use(Target.API, _reads_rows),
    "read rows": Use(Target.DATA, _reads_rows),
}


def cells(kind: str = S3) -> list[Cell]:
    """Return all cells of the matrix that a place of this kind can have."""
    return [
        Cell(fault, use, always)
        for fault in ALL_FAULTS
        if fault.name not in LEFT_OUT and (kind != DIRECTORY or fault.name in local_faults.MEANINGS)
        for use in USES
        # The files of a volume or table with URLs are listed by the sharing server.
        if fault.target.covers(USES[use].target) and (kind != URLS or USES[use].target is Target.DATA)
        for always in (False, True)
    ]


@dataclasses.dataclass
class Store:
    """A store with ``objects()``: its protocol, how requests reach it, and how its volume and its table are shared.

    ``share`` opens a sharing server whose assets lie in the store at an endpoint, and returns its profile and the
    ``storage_options`` of the client.
    """

    kind: str
    origin: Origin
    share: Callable[[str], contextlib.AbstractContextManager[tuple[Mapping[str, Any], Mapping[str, str]]]]


@dataclasses.dataclass
class Station:
    """Clients of a store behind a proxy of its own: ``hasty`` has a short deadline, ``patient`` makes more attempts."""

    proxy: FaultProxy | local_faults.LocalFaults
    client: ds.SharingClient
    hasty: ds.SharingClient
    patient: ds.SharingClient
    folder: pathlib.Path

    def outcome(self, cell: Cell) -> str:
        """Return the result of a cell."""
        self.proxy.faults.clear()
        self.proxy.set_fault(cell.text)
        # On a busy machine, the attempt after the fault may fail, too.
        is_patient = not cell.always or cell.fault.name == "throttled"
        client = self.patient if is_patient else self.hasty if cell.fault.name in ENDLESS else self.client
        folder = self.folder / f"{cell.fault.name}-{cell.use}-{cell.always}"
        folder.mkdir()
        try:
            result = "right" if USES[cell.use].run(client, folder) else "wrong"
        except ds.DeltaSharingError as error:
            result = type(error).__name__ + _complaint(error)
            if not all(_is_complete(path, folder / "here") for path in folder.rglob("*") if path.is_file()):
                result += ", and wrong files"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        # A fault that no response had proves nothing.
        return UNUSED if self.proxy.faults.left(cell.fault.name) == cell.count else result


def _is_complete(path: pathlib.Path, folder: pathlib.Path) -> bool:
    """Return whether a file in a directory after a failed download is complete, or is not a file of the volume."""
    name = path.relative_to(folder).as_posix()
    return name.startswith(".delta-sharing/") or _is_one_version(path.read_bytes(), FILES[name])


def _complaint(error: ds.DeltaSharingError) -> str:
    words = [word for word in (SECRET, "sig=", "Stale", "Traceback") if word in str(error)]
    if not hasattr(ds, type(error).__name__):
        words.append("a class that is not public")
    return f" with {words}" if words else ""


# === What is behind the proxy ===

Vendor = Callable[..., Mapping[str, object]]


def objects() -> dict[str, bytes]:
    """Return the objects of each store by key: of a volume and a table, and others that are in neither."""
    root = _table()
    return {
        **{f"{FOLDER}/{path}": content for path, content in FILES.items()},
        **{f"{root.name}/{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()},
        f"{FOLDER}-not/a.txt": b"sibling",
        "elsewhere/a.txt": b"another folder",
    }


@functools.cache
def _table() -> pathlib.Path:
    """Write a table with two files in two commits, which is removed when the process ends."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    writer = TableWriter(pathlib.Path(folder) / "matrix-table", pa.schema([("id", pa.int64())]))
    half = len(IDS) // 2
    writer.insert(rows_of(IDS[:half]))
    writer.insert(rows_of(IDS[half:]))
    return writer.path


def simulated(kind: str, store: SimulatedStore | None = None) -> Store:
    """Return a simulated store of this kind with ``FILES``, and with objects that are not in the volume."""
    store = store or SimulatedStore(kind)
    store.objects.update(objects())
    if kind == URLS:
        return Store(kind, store.answer, by_url)
    if kind == DIRECTORY:
        return Store(kind, store.answer, by_directory)
    return Store(kind, store.answer, by_credentials(kind, _LOCATIONS[kind], _vendor(kind), origin=store.answer))


def by_credentials(
    kind: str,
    location: str,
    vendors: Mapping[str, Vendor],
    *,
    origin: Origin | None = None,
    s3: S3Settings | None = None,
    options: Mapping[str, str] | None = None,
) -> Any:
    """Return ``Store.share`` of a store at ``location`` whose server provides credentials for it.

    The server itself reads the logs of tables in S3: from ``origin``, or with the settings ``s3``.
    """

    @contextlib.contextmanager
    def share(endpoint: str) -> Iterator[tuple[Mapping[str, Any], Mapping[str, str]]]:
        volume = asset_files.volume(("s", "d", "v"), f"{location}/{FOLDER}")
        table = dataclasses.replace(catalog.entry("s", "d", "t", _table()), storage=f"{location}/{_table().name}")
        account = f"/{location.partition('@')[2].partition('.')[0]}" if kind == AZURE else ""
        with contextlib.ExitStack() as stack:
            own = s3 or S3Settings()
            if kind == S3 and origin is not None:
                direct = stack.enter_context(fault_proxy(kind, origin))
                own = S3Settings(
                    endpoint=direct.endpoint,
                    region="us-east-1",
                    access_key_id="id",
                    secret_access_key=Secret(SECRET),
                )
            shared = catalog.build([table], assets=[volume])
            server = stack.enter_context(mock_server.running(shared, vendors=vendors, s3=own))
            yield server.profile, {"endpoint": f"{endpoint}{account}", **(options or {})}

    return share


def _vendor(kind: str) -> Mapping[str, Vendor]:
    """Return a function that creates different credentials each time it is called, by its scheme."""
    numbers = itertools.count(1)

    def aws(*_: object) -> Mapping[str, object]:
        token = f"{SECRET}-{next(numbers)}"
        return {"awsTempCredentials": {"accessKeyId": "id", "secretAccessKey": SECRET, "sessionToken": token}}

    def azure(*_: object) -> Mapping[str, object]:
        return {"azureUserDelegationSas": {"sasToken": f"sv=2020-08-04&sig={SECRET}-{next(numbers)}"}}

    def google(*_: object) -> Mapping[str, object]:
        return {"gcpOauthToken": {"oauthToken": f"{SECRET}-{next(numbers)}"}}

    schemes: Mapping[str, Mapping[str, Vendor]] = {S3: {"s3": aws}, AZURE: {"abfss": azure}, GOOGLE: {"gs": google}}
    return schemes[kind]


@contextlib.contextmanager
def by_url(endpoint: str) -> Iterator[tuple[Mapping[str, Any], Mapping[str, str]]]:
    """Share the files as a server does that provides a URL for each file instead of credentials."""
    base, table = "/api/shares/s/schemas/d/volumes/v", "/api/shares/s/schemas/d/tables/t"
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    schema = json.dumps({"type": "struct", "fields": fields})
    about: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1}},
        {"metaData": {"id": "t", "format": {"provider": "parquet"}, "schemaString": schema, "partitionColumns": []}},
    ]
    numbers = itertools.count(1)

    async def describe(_: Any) -> JSONResponse:
        return JSONResponse({"name": "v", "schema": "d", "share": "s", "storageLocation": "s3://bucket/volumes/"})

    async def files(_: Any) -> JSONResponse:
        return JSONResponse({"items": [{"file_path": path, "size": len(content)} for path, content in FILES.items()]})

    async def sign(request: Any) -> JSONResponse:
        key = f"{FOLDER}/{(await request.json())['file_path']}"
        return JSONResponse({"download_url": f"{endpoint}/bucket/{quote(key)}?sig={SECRET}"})

    async def rows(request: Any) -> Response:
        lines = list(about)
        for path in sorted(_table().glob("*.parquet")) if request.url.path.endswith("/query") else ():
            # Every query has new URLs, as after a renewal.
            url = f"{endpoint}/bucket/{_table().name}/{path.name}?sig={SECRET}-{next(numbers)}"
            size = path.stat().st_size
            lines.append({"file": {"url": url, "id": path.name, "partitionValues": {}, "size": size}})
        headers = {"Delta-Table-Version": "2"}
        return Response("\n".join(map(json.dumps, lines)), headers=headers, media_type="application/x-ndjson")

    app = Starlette(
        routes=[
            Route(f"{table}/metadata", rows),
            Route(f"{table}/version", rows),
            Route(f"{table}/query", rows, methods=["POST"]),
            Route(base, describe),
            Route(f"{base}/files", files),
            Route(f"{base}/files/download", sign, methods=["POST"]),
        ]
    )
    with bind("127.0.0.1", 0) as listening, serving(uvicorn_config(app), listening):
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/api/"
        yield {"shareCredentialsVersion": 1, "endpoint": address, "bearerToken": SECRET}, {}


@contextlib.contextmanager
def by_directory(root: str) -> Iterator[tuple[Mapping[str, Any], Mapping[str, str]]]:
    """Share the files below a directory of this machine."""
    volume = asset_files.volume(("s", "d", "v"), f"{root}/{FOLDER}")
    table = catalog.entry("s", "d", "t", pathlib.Path(root) / _table().name)
    with mock_server.running(catalog.build([table], assets=[volume]), local_directories=True) as server:
        yield server.profile, {}


@contextlib.contextmanager
def _faulty(store: Store, folder: pathlib.Path) -> Iterator[tuple[FaultProxy | local_faults.LocalFaults, str]]:
    """Yield the faults of a place, and where ``store.share`` finds it."""
    if store.kind == DIRECTORY:
        root = folder / "root"
        with local_faults.local_faults(root, objects()) as faults:
            yield faults, str(root)
    else:
        with fault_proxy(store.kind, store.origin) as proxy:
            yield proxy, proxy.endpoint


@contextlib.contextmanager
def station(store: Store, folder: pathlib.Path, **options: Any) -> Iterator[Station]:
    """Open a volume of ``store`` through a proxy of its own."""
    with _faulty(store, folder) as (proxy, where), store.share(where) as (profile, stored):
        access = ds.AccessMode.URL if store.kind == URLS else ds.AccessMode.DIR
        settings = dataclasses.replace(OPTIONS, storage_options=stored, access_mode=access, **options)
        short, long = (dataclasses.replace(settings, **one) for one in ({"total_timeout": 5.0}, {"max_attempts": 8}))
        with (
            ds.SharingClient(profile, settings) as client,
            ds.SharingClient(profile, short) as hasty,
            ds.SharingClient(profile, long) as patient,
        ):
            yield Station(proxy, client, hasty, patient, folder)


def outcomes(store: Store, chosen: list[Cell], *, stations: int = 8) -> dict[Cell, str]:
    """Return the results of the ``chosen`` cells. Fails if a redirect was followed."""
    free: queue.Queue[Station] = queue.Queue()
    with contextlib.ExitStack() as stack:
        # The large file is downloaded in parts, so that ranges are requested.
        stack.enter_context(mock.patch.object(transfers, "PART_BYTES", 64 * 1024))
        stack.enter_context(mock.patch.object(local, "_CHUNK", 64 * 1024))
        stack.enter_context(local_faults.injected())
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        opened = []
        for number in range(min(stations, len(chosen))):
            own = folder / str(number)
            own.mkdir()
            opened.append(stack.enter_context(station(store, own)))
            free.put(opened[-1])

        def one(cell: Cell) -> str:
            at = free.get()
            try:
                return at.outcome(cell)
            finally:
                free.put(at)

        with ThreadPoolExecutor(len(opened)) as pool:
            futures = {cell: pool.submit(one, cell) for cell in chosen}
            results = {cell: future.result(timeout=HANGS) for cell, future in futures.items()}
        # A URL may lead elsewhere, as tables' URLs may; a signature or a token must not be sent there.
        assert store.kind == URLS or not any(at.proxy.elsewhere for at in opened)
    return results

"""Every fault of ``tests.fault_proxy``, once and permanently, in front of a store: what a user gets.

A result is ``right`` (exactly the files, or exactly the bytes) or the class of a ``DeltaSharingError``. Anything else
is a failure of the matrix: other bytes, other exceptions, a message with a secret, no end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
import queue
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import delta_sharing_client as ds
import mock_server
from mock_server.faults import FaultKind, Target
from mock_server.running import bind, serving, uvicorn_config
from tests.fault_proxy import ALL_FAULTS, FaultProxy, Origin, fault_proxy
from tests.object_stores import AZURE, GOOGLE, S3, URLS, SimulatedStore
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
OPTIONS = ds.ReadOptions(
    max_attempts=2, max_retry_seconds=12.0, connect_timeout=5.0, read_timeout=2.5, total_timeout=20.0, progress=False
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
ENDLESS = {"endless-names", "endless-continue"}
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
    """What is done with a volume, which requests have the fault, and a function that compares the result."""

    target: Target
    run: Callable[[ds.Volume, pathlib.Path], bool]


def _lists(volume: ds.Volume, folder: pathlib.Path) -> bool:
    return sorted((file.path, file.size) for file in volume.files()) == sorted(
        (path, len(content)) for path, content in FILES.items()
    )


def _reads(volume: ds.Volume, folder: pathlib.Path) -> bool:
    return _is_one_version(volume.read_bytes(LARGE), FILES[LARGE])


def _seeks(volume: ds.Volume, folder: pathlib.Path) -> bool:
    with volume.open(LARGE) as stream:
        stream.seek(123_457)
        start = stream.read(1000)
        stream.seek(290_000)
        return _is_one_version(start + stream.read(), FILES[LARGE][123_457:124_457] + FILES[LARGE][290_000:])


def _downloads(volume: ds.Volume, folder: pathlib.Path) -> bool:
    volume.download(folder / "here")
    return all(_is_one_version((folder / "here" / path).read_bytes(), content) for path, content in FILES.items())


def _is_one_version(data: bytes, content: bytes) -> bool:
    """Return whether ``data`` is ``content`` or one of the versions that the fault 'changed' makes of it."""
    shift = (data[0] - content[0]) % 256 if data and content else 0
    return data == bytes((byte + shift) % 256 for byte in content)


USES = {
    "list": Use(Target.API, _lists),
    "read": Use(Target.DATA, _reads),
    "seek": Use(Target.DATA, _seeks),
    "download": Use(Target.DATA, _downloads),
}


def cells() -> list[Cell]:
    """Return all cells of the matrix."""
    return [
        Cell(fault, use, always)
        for fault in ALL_FAULTS
        if fault.name not in LEFT_OUT
        for use in USES
        if fault.target.covers(USES[use].target)
        for always in (False, True)
    ]


@dataclasses.dataclass
class Store:
    """A store with ``FILES`` below ``FOLDER``: its protocol, how requests reach it, and how its volume is shared.

    ``share`` opens a sharing server whose volume ``s.d.v`` lies in the store at an endpoint, and returns its profile
    and the ``storage_options`` of the client.
    """

    kind: str
    origin: Origin
    share: Callable[[str], contextlib.AbstractContextManager[tuple[Mapping[str, Any], Mapping[str, str]]]]


@dataclasses.dataclass
class Station:
    """A volume behind a proxy of its own."""

    proxy: FaultProxy
    volume: ds.Volume
    endless: ds.Volume
    folder: pathlib.Path

    def outcome(self, cell: Cell) -> str:
        """Return the result of a cell."""
        self.proxy.faults.clear()
        self.proxy.set_fault(cell.text)
        volume = self.endless if cell.always and cell.fault.name in ENDLESS else self.volume
        folder = self.folder / f"{cell.fault.name}-{cell.use}-{cell.always}"
        folder.mkdir()
        try:
            result = "right" if USES[cell.use].run(volume, folder) else "wrong"
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


def simulated(kind: str, store: SimulatedStore | None = None) -> Store:
    """Return a simulated store of this kind with ``FILES``, and with objects that are not in the volume."""
    store = store or SimulatedStore(kind)
    others = {f"{FOLDER}-not/a.txt": b"sibling", "elsewhere/a.txt": b"another folder"}
    store.objects.update({f"{FOLDER}/{path}": content for path, content in FILES.items()} | others)
    return Store(kind, store.answer, by_url if kind == URLS else by_credentials(kind, _LOCATIONS[kind], _vendor(kind)))


def by_credentials(kind: str, location: str, vendors: Mapping[str, Vendor], **options: str) -> Any:
    """Return ``Store.share`` of a store at ``location`` whose server provides credentials for it."""

    @contextlib.contextmanager
    def share(endpoint: str) -> Iterator[tuple[Mapping[str, Any], Mapping[str, str]]]:
        with mock_server.running(volumes={"s.d.v": f"{location}/{FOLDER}"}, vendors=vendors) as server:
            account = f"/{location.partition('@')[2].partition('.')[0]}" if kind == AZURE else ""
            yield server.profile, {"endpoint": f"{endpoint}{account}", **options}

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
    volume = "/api/shares/s/schemas/d/volumes/v"

    async def describe(_: Any) -> JSONResponse:
        return JSONResponse({"name": "v", "schema": "d", "share": "s", "storageLocation": "s3://bucket/volumes/"})

    async def files(_: Any) -> JSONResponse:
        return JSONResponse({"items": [{"file_path": path, "size": len(content)} for path, content in FILES.items()]})

    async def sign(request: Any) -> JSONResponse:
        key = f"{FOLDER}/{(await request.json())['file_path']}"
        return JSONResponse({"download_url": f"{endpoint}/bucket/{quote(key)}?sig={SECRET}"})

    app = Starlette(
        routes=[
            Route(volume, describe),
            Route(f"{volume}/files", files),
            Route(f"{volume}/files/download", sign, methods=["POST"]),
        ]
    )
    with bind("127.0.0.1", 0) as listening, serving(uvicorn_config(app), listening):
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/api/"
        yield {"shareCredentialsVersion": 1, "endpoint": address, "bearerToken": SECRET}, {}


@contextlib.contextmanager
def station(store: Store, folder: pathlib.Path, **options: Any) -> Iterator[Station]:
    """Open a volume of ``store`` through a proxy of its own."""
    with fault_proxy(store.kind, store.origin) as proxy, store.share(proxy.endpoint) as (profile, stored):
        settings = dataclasses.replace(OPTIONS, storage_options=stored, **options)
        short = dataclasses.replace(settings, total_timeout=4.0)
        with ds.SharingClient(profile, settings) as client, ds.SharingClient(profile, short) as other:
            yield Station(proxy, client.volume("s.d.v"), other.volume("s.d.v"), folder)


def outcomes(store: Store, chosen: list[Cell], *, stations: int = 12) -> dict[Cell, str]:
    """Return the results of the ``chosen`` cells. Fails if a redirect was followed."""
    free: queue.Queue[Station] = queue.Queue()
    with contextlib.ExitStack() as stack:
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

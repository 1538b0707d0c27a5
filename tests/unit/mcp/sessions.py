"""Sessions of the MCP SDK's client with our server: in process, or over HTTP; and a store of skills behind it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

import httpx2
import mcp_types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

import mock_server
from delta_sharing_client.mcp import server as server_module
from delta_sharing_client.mcp.limits import Limits
from delta_sharing_client.mcp.scope import EVERYTHING, Scope
from delta_sharing_client.options import ReadOptions
from mock_server import asset_files, catalog
from tests.fault_proxy import FaultProxy, fault_proxy
from tests.object_stores import S3, SimulatedStore
from tests.time_limits import HANGS

T = TypeVar("T")
SECRET = "planted"


class _AnyResult(mcp_types.Result):
    model_config = ConfigDict(extra="allow")


class Session:
    """A session of ``client``, with the methods of the skills extension."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of any method."""
        request: Any = mcp_types.Request[dict[str, Any], str](method=method, params=params)
        return (await self.client.session.send_request(request, _AnyResult)).model_dump()

    async def read(self, uri: str) -> bytes:
        """Return the bytes of a resource."""
        (content,) = (await self.client.read_resource(uri)).contents
        assert content.uri == uri
        return content.text.encode() if hasattr(content, "text") else base64.b64decode(content.blob)

    async def skills(self) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """Return the entries of all pages, and the reasons for those that are left out, by URI."""
        entries: list[dict[str, Any]] = []
        refused: dict[str, str] = {}
        params: dict[str, Any] = {}
        while True:
            page = await self.ask("skills/list", **params)
            entries += page["skills"]
            refused |= {
                one["uri"]: one["reason"] for one in (page["meta"] or {}).get("delta-sharing-client/notServed", ())
            }
            if "nextCursor" not in page:
                return entries, refused
            params = {"cursor": page["nextCursor"]}

    async def error(self, method: str, **params: Any) -> tuple[int, str]:
        """Return the code and the text of the error of a request."""
        try:
            found = await self.ask(method, **params)
        except MCPError as error:
            return error.error.code, error.error.message
        raise AssertionError(f"expected an error, got {found}")


def connected(server: Any, use: Callable[[Session], Awaitable[T]], **options: Any) -> T:
    """Return the result of ``use`` in a session with ``server``: a server of this process, or the address and the token
    of one over HTTP."""

    async def run() -> T:
        async with contextlib.AsyncExitStack() as stack:
            transport = server
            if isinstance(server, tuple):
                headers = {"Authorization": f"Bearer {server[1]}"}
                http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=HANGS))
                transport = streamable_http_client(server[0], http_client=http)
            client = await stack.enter_async_context(Client(transport, **options))
            return await use(Session(client))

    return asyncio.run(asyncio.wait_for(run(), HANGS))


def digests(files: Mapping[str, bytes], root: str = "", name: str = "uri") -> list[dict[str, Any]]:
    """Return what an entry has to state about ``files``, sorted by URI; ``name`` is the name of the URI."""
    facts = (
        {name: f"{root}{path}", "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}
        for path, data in files.items()
    )
    return sorted(facts, key=lambda one: one[name])


class Shelf:
    """Skills in a simulated store of S3, shared as ``share.schema.name`` with the files ``{path: content}``."""

    def __init__(self, store: SimulatedStore, proxy: FaultProxy, profile: Any) -> None:
        self.store, self.proxy, self.profile = store, proxy, profile

    def put(self, skill: str, files: Mapping[str, bytes]) -> None:
        """Replace the files of a skill."""
        start = f"{skill}/{skill.rpartition('.')[2]}/"
        self.store.objects = {key: data for key, data in self.store.objects.items() if not key.startswith(start)}
        self.store.objects.update({f"{start}{path}": data for path, data in files.items()})

    def reads(self) -> list[str]:
        """Return the keys that were downloaded since the last call, listings left out."""
        taken, self.store.requests = self.store.requests, []
        return [one.path.split("/", 2)[-1] for one in taken if not one.is_listing]

    def server(self, limits: Limits | None = None, scope: Scope = EVERYTHING) -> Any:
        """Return a server for all skills."""
        return server_module.make_server(self.profile, limits or Limits(), scope)


@contextlib.contextmanager
def shelf(monkeypatch: Any, *names: str) -> Iterator[Shelf]:
    """Share skills with these full names, whose files are at their full names in the bucket."""
    numbers = itertools.count(1)

    def vend(*_: object) -> Mapping[str, object]:
        token = f"{SECRET}-{next(numbers)}-"
        return {"awsTempCredentials": {"accessKeyId": "id", "secretAccessKey": SECRET, "sessionToken": token}}

    def item(full: str) -> Any:
        share, schema, name = full.rsplit(".", 2)
        about = {"description": "What the server lists."}
        return asset_files.skill((share, schema, name), f"s3://bucket/{full}/{name}", about)

    store = SimulatedStore(S3)
    with (
        fault_proxy(S3, store.answer) as proxy,
        mock_server.running(catalog.build((), assets=[item(name) for name in names]), vendors={"s3": vend}) as server,
    ):
        settings = {"endpoint": proxy.endpoint, "region": "us-east-1"}
        options = functools.partial(ReadOptions, storage_options=settings, max_attempts=2, max_retry_seconds=5.0)
        monkeypatch.setattr(server_module, "ReadOptions", options)
        yield Shelf(store, proxy, server.profile)

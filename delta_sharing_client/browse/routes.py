"""The paths of the page's server: files of the page, JSON requests, and files to download."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from delta_sharing_client.browse import assets, completion, downloads, folders, previews, query_box, tables
from delta_sharing_client.browse.asked import Asked, Mistake
from delta_sharing_client.browse.guard import API, FILES
from delta_sharing_client.browse.session import PDF, Session
from delta_sharing_client.errors import DeltaSharingError, UsageError
from delta_sharing_client.outputs.file_formats import compact_json
from delta_sharing_client.run.loop import asynchronously

Question = Callable[[Session, Asked], Mapping[str, object]]

_STATIC = Path(__file__).parent / "static"
_MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
_PAGE = "page.html"
_MOST_ASKED = 1_000_000

QUESTIONS: Mapping[str, Question] = {
    "start": assets.start,
    "schemas": assets.schemas,
    "assets": assets.listed,
    "asset": assets.described,
    "alias": assets.alias,
    "search": assets.searched,
    "table": tables.described,
    "column": tables.column,
    "values": tables.values,
    "condition": tables.condition,
    "rows": tables.rows,
    "history": tables.history,
    "code": tables.code,
    "cost": previews.cost,
    "plan": previews.plan_preview,
    "preview": previews.preview,
    "download": downloads.begin,
    "download-file": downloads.begin_file,
    "progress": downloads.progress,
    "cancel": downloads.cancel,
    "folder": folders.folder,
    "look": folders.look,
    "query-first": query_box.first,
    "query-names": completion.names,
    "query-plan": query_box.planned,
    "query-rows": query_box.rows,
    "query-code": query_box.code,
    "query-download": query_box.begin,
}
"""The function for each request. It returns a JSON object; its errors are ``DeltaSharingError`` and ``Mistake``."""


def make_app(session: Session) -> Starlette:
    """Return the application that shows ``session``. It trusts every request, because ``guard.Guard`` has checked
    it."""

    async def ask(request: Request) -> Response:
        return await _asked(session, request)

    async def take(request: Request) -> Response:
        return _taken(session, request.path_params["name"])

    app = Starlette(
        routes=[
            Route(f"{API}{{name}}", ask, methods=["POST"]),
            Route(f"{FILES}{{name}}", take, methods=["GET"]),
            Route("/", _page, methods=["GET"]),
            Route("/{name}", _page, methods=["GET"]),
        ]
    )
    app.router.redirect_slashes = False
    return app


async def _page(request: Request) -> Response:
    name = request.path_params.get("name", _PAGE)
    files = {path.name: path for path in _STATIC.iterdir()}
    if name not in files:
        return PlainTextResponse("There is no such page.", 404)
    media_type = _MEDIA_TYPES[files[name].suffix]
    return Response(files[name].read_bytes(), media_type=media_type)


# === Requests ===


async def _asked(session: Session, request: Request) -> Response:
    question = QUESTIONS.get(request.path_params["name"])
    if question is None:
        return _json({"error": "The page requests something that this version does not have: reload it."}, 404)
    try:
        asked = Asked(_object(await _body(request)))
    except UsageError as error:
        return _json({"error": str(error)}, 400)
    running = asyncio.ensure_future(asynchronously(lambda: question(session, asked)))
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((running, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            # Nobody waits for the response any more, so its reads are ended.
            running.cancel()
            return _json({"error": "The page was closed."}, 499)
        return _json(running.result())
    except Mistake as mistake:
        return _json({"error": session.masked(str(mistake)), "field": mistake.field, "span": mistake.span}, 400)
    except DeltaSharingError as error:
        return _json({"error": session.masked(str(error)), "kind": type(error).__name__}, 400)
    except asyncio.CancelledError:
        running.cancel()
        raise
    except Exception as error:
        # The error's message may contain secrets that are not masked.
        message = f"An unexpected {type(error).__name__} occurred. This is a bug in delta_sharing_client: report it."
        return _json({"error": message}, 500)
    finally:
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_ASKED:
            raise UsageError(f"The request body must have at most {_MOST_ASKED:,} bytes.")
    return body


def _object(body: bytes) -> Mapping[str, object]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError("Expected the request body to be a JSON object.")
    return value


def _json(content: Mapping[str, object], status: int = 200) -> Response:
    # Shared text may contain lone surrogates, which UTF-8 cannot encode.
    body = compact_json(content).encode("utf-8", "replace")
    return Response(body, status, media_type="application/json")


# === Files ===


def _taken(session: Session, name: str) -> Response:
    file = session.ready_file(name)
    if file is None or not file.path.exists():
        return PlainTextResponse(
            "This file was already downloaded, or its download was cancelled. Start it again.", 404
        )
    # A picture may be shown again; other files are removed once they were sent.
    sent = None if file.is_shown else BackgroundTask(session.withdraw, name)
    return FileResponse(
        file.path,
        media_type=file.media_type,
        filename=file.name,
        content_disposition_type="inline" if file.media_type == PDF else "attachment",
        background=sent,
    )

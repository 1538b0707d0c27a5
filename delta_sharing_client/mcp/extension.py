"""The methods of the extension ``io.modelcontextprotocol/skills`` (SEP-2640)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mcp.server.extension import Extension, MethodBinding
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, PaginatedRequestParams, RequestParams

from delta_sharing_client.assets.skill_file import SKILL_FILE
from delta_sharing_client.mcp.addresses import SKILL, Address, unknown
from delta_sharing_client.mcp.calls import CallError, Calls
from delta_sharing_client.mcp.resources import Resources
from delta_sharing_client.mcp.skills import Skills

T = TypeVar("T")

NOT_SERVED = "delta-sharing-client/notServed"
"""The name of the metadata of ``skills/list`` that says which skills a host could not load, and why."""

_MOST_LISTED = 20
_CACHING = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "private"}


class _SkillParams(RequestParams):
    uri: str


class _DirectoryParams(PaginatedRequestParams):
    uri: str


async def answered(calls: Calls, call: Callable[[], T], uri: str | None = None) -> T:
    """Return ``call()``, run by ``calls``. Raises ``MCPError`` about ``uri``, with invalid parameters if the same call
    always fails ("Error Handling")."""
    try:
        return await calls.run(call)
    except CallError as error:
        code, reason = INVALID_PARAMS if error.is_refused else INTERNAL_ERROR, str(error)
    raise MCPError(code, reason, uri and {"uri": uri})


class SkillsExtension(Extension):
    """Lists skills and directories."""

    identifier = "io.modelcontextprotocol/skills"

    def __init__(self, skills: Skills, resources: Resources, calls: Calls) -> None:
        self._skills, self._resources, self._calls = skills, resources, calls

    def settings(self) -> dict[str, Any]:
        """The extension's settings among the server's capabilities."""
        return {"directoryRead": True}

    def methods(self) -> Sequence[MethodBinding]:
        """The extension's methods."""
        return (
            MethodBinding("skills/list", PaginatedRequestParams, self._list),
            MethodBinding("skills/get", _SkillParams, self._get),
            MethodBinding("resources/directory/read", _DirectoryParams, self._directory),
        )

    async def _list(self, _: object, params: PaginatedRequestParams) -> dict[str, Any]:
        def page() -> dict[str, Any]:
            after = None if params.cursor is None else Address.parse(params.cursor)
            served, refused, last = self._skills.page(after, _MOST_LISTED)
            result = {"skills": [manifest.entry() for manifest in served], **_CACHING}
            if last is not None:
                result["nextCursor"] = str(last)
            if refused:
                result["_meta"] = {NOT_SERVED: [{"uri": uri, "reason": reason} for uri, reason in refused.items()]}
            return result

        return await answered(self._calls, page)

    async def _get(self, _: object, params: _SkillParams) -> dict[str, Any]:
        def get() -> dict[str, Any]:
            address = Address.parse(params.uri)
            if (address.scheme, address.path) != (SKILL, SKILL_FILE):
                raise unknown(params.uri, f"expected the URI of the {SKILL_FILE} of a skill")
            return {"skill": self._skills.at(address).entry(), **_CACHING}

        return await answered(self._calls, get, params.uri)

    async def _directory(self, _: object, params: _DirectoryParams) -> dict[str, Any]:
        found, following = await answered(
            self._calls, lambda: self._resources.children(params.uri, params.cursor), params.uri
        )
        children = [one.model_dump(by_alias=True, exclude_none=True, mode="json") for one in found]
        result: dict[str, Any] = {"resultType": "complete", "resources": children}
        return result if following is None else {**result, "nextCursor": following}

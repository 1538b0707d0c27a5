"""The files behind the pre-signed URLs of a sharing server, which expire and are then renewed."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import OrderedDict
from typing import TYPE_CHECKING, ClassVar

from delta_sharing_client.fetch.place import DataRequest, Page, Refused, Take, UrlSource
from delta_sharing_client.http.network import Allowed
from delta_sharing_client.http.retry import Deadline
from delta_sharing_client.lazy import lazy
from delta_sharing_client.options import ReadOptions

if TYPE_CHECKING:
    from delta_sharing_client.fetch.http import Http

_KEPT_SOURCES = 64


@dataclasses.dataclass(frozen=True)
class SignedUrls:
    """The files of a table behind pre-signed URLs, as a ``Place``. Picklable.

    ``allowed`` are the URLs that may be requested, as determined by the profile's endpoint. ``table`` is for errors.
    ``urls`` renews URLs; without it, a refused URL is an error.
    """

    options: ReadOptions
    allowed: Allowed
    table: str | None
    urls: UrlSource | None = None
    lists_in_order: ClassVar[bool] = False

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @lazy
    def _http(self) -> Http:
        # Imported here, because aiohttp takes a while to import.
        from delta_sharing_client.fetch.http import Http

        return Http(self.options, self.allowed, self.table)

    async def get(self, request: DataRequest, take: Take) -> None:
        """Like ``Place.get``."""
        await self._http.get(request, take)

    async def page(self, folder: str, mark: str | None, deadline: Deadline, *, recursive: bool) -> Page:
        """Raise ``Refused``, because URLs of files cannot be listed."""
        raise Refused(405, None)

    def shared(self, plan_id: str) -> SignedUrls:
        """Return this place for several parts of a plan: in one process, they share one source of URLs."""
        return self if self.urls is None else dataclasses.replace(self, urls=SharedUrls(plan_id, self.urls))


class SharedUrls:
    """A ``UrlSource``. In one process, all unpickled copies with the same ``plan_id`` use the same source."""

    def __init__(self, plan_id: str, urls: UrlSource) -> None:
        self._plan_id = plan_id
        self._urls = urls

    def __repr__(self) -> str:
        return f"SharedUrls({self._plan_id!r})"

    def url_for(self, key: str, rejected: str | None = None) -> str:
        """Like ``UrlSource.url_for``."""
        # Without a lock: a forked child would wait for it forever if another thread held it.
        found = _sources.setdefault(self._plan_id, self._urls)
        with contextlib.suppress(KeyError):  # another thread has removed it
            _sources.move_to_end(self._plan_id)
            while len(_sources) > _KEPT_SOURCES:
                _sources.popitem(last=False)
        return found.url_for(key, rejected)


_sources: OrderedDict[str, UrlSource] = OrderedDict()

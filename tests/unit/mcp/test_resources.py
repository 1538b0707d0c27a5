"""Files of volumes and model versions as resources, and the URIs of all files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.errors import DeltaSharingError, NotFoundError
from delta_sharing_client.mcp import resources
from delta_sharing_client.mcp.addresses import TEMPLATES, Address
from delta_sharing_client.mcp.limits import Limits
from delta_sharing_client.mcp.scope import Scope
from delta_sharing_client.mcp.server import make_server
from delta_sharing_client.protocol.names import AssetName
from tests.quota import meets, met
from tests.unit.mcp.sessions import Session, connected

INVALID = -32602
FILES = {
    "notes.md": b"# \xc3\xa9\r\n",
    "a b/c#1?.bin": bytes(range(256)),
    "a b/100%.txt": b"text",
    "a b/deep/er/x": b"",
    "..hidden": b"h",
}
WRITTEN = {
    "notes.md": "notes.md",
    "a b/c#1?.bin": "a%20b/c%231%3F.bin",
    "a b/100%.txt": "a%20b/100%25.txt",
    "a b/deep/er/x": "a%20b/deep/er/x",
    "..hidden": "..hidden",
}
NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=6) | st.sampled_from(
    ["..", "%2F", "a/b", "é", "a b", "#", "?", "100%", "\udcff", "`"]
)


@pytest.fixture(scope="module")
def served(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("files")
    for start in ("docs", "churn/3"):
        for path, data in FILES.items():
            (folder / start / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / start / path).write_bytes(data)
    return serve(tables={}, volumes={"my%share.d.docs": folder / "docs"}, models={"my%share.d.churn": folder / "churn"})


def use(served: Any, call: Callable[[Session], Any], limits: Limits | None = None, scope: Scope | None = None) -> Any:
    return connected(make_server(served.profile_path, limits or Limits(), scope or Scope()), call)


@pytest.mark.parametrize("root", ["volume://my%25share/d/docs", "model://my%25share/d/churn/3"])
def test_every_file_is_found_and_read(served: Any, root: str) -> None:
    async def walk(session: Session) -> None:
        found: dict[str, tuple[bytes, str | None, int]] = {}
        left = [root]
        while left:
            for one in (await session.ask("resources/directory/read", uri=left.pop()))["resources"]:
                if one.get("mimeType") == "inode/directory":
                    left.append(one["uri"])
                else:
                    found[one["uri"]] = (await session.read(one["uri"]), one.get("mimeType"), one["size"])
        assert {uri: (data, size) for uri, (data, _, size) in found.items()} == {
            f"{root}/{WRITTEN[path]}": (data, len(data)) for path, data in FILES.items()
        }
        assert found[f"{root}/notes.md"][1] == "text/markdown"
        for path in ("nope", "a%20b", "", "notes.md/x", "%2E%2E/docs/notes.md", "a%20b/../notes.md"):
            assert (await session.error("resources/read", uri=f"{root}/{path}"))[0] == INVALID
        for path in ("notes.md", "nope", "a%20b/"):
            assert (await session.error("resources/directory/read", uri=f"{root}/{path}"))[0] == INVALID

    use(served, walk)


def test_templates_lead_to_the_files(served: Any) -> None:
    async def read(session: Session) -> None:
        listed = (await session.client.list_resource_templates()).resource_templates
        assert [one.uri_template for one in listed] == list(TEMPLATES.values())
        values = {"share": "my%25share", "schema": "d", "name": "docs", "+path": "a b/100%25.txt"}
        uri = listed[1].uri_template
        for name, value in values.items():
            uri = uri.replace(f"{{{name}}}", value)
        assert await session.read(uri) == b"text"

    use(served, read)


def test_directory_is_read_in_pages(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "MOST_CHILDREN", 1)
    root = "volume://my%25share/d/docs"

    async def read(session: Session) -> None:
        seen, params = [], {"uri": root}
        while params:
            page = await session.ask("resources/directory/read", **params)
            seen += [one["name"] for one in page["resources"]]
            params = {"uri": root, "cursor": page["nextCursor"]} if "nextCursor" in page else {}
        assert sorted(seen) == ["..hidden", "a b", "notes.md"]
        for cursor in ("-1", "x", "1" * 30):
            assert (await session.error("resources/directory/read", uri=root, cursor=cursor))[0] == INVALID

    use(served, read)


def test_large_file_and_other_shares_are_refused(served: Any, tmp_path: Path, serve: Callable[..., Any]) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "big.txt").write_bytes(b"x" * 1_000_001)
    (tmp_path / "v" / "fits.txt").write_bytes(b"x" * 1_000_000)
    other = serve(tables={}, volumes={"s.d.v": tmp_path / "v"})

    async def read(session: Session) -> None:
        code, message = await session.error("resources/read", uri="volume://s/d/v/big.txt")
        assert code == INVALID
        assert "has 1,000,001 bytes, but a call may download at most 1,000,000" in message
        assert len(await session.read("volume://s/d/v/fits.txt")) == 1_000_000

    use(other, read, Limits(megabytes=1))

    async def hidden(session: Session) -> None:
        for uri in ("volume://my%25share/d/docs/notes.md", "model://my%25share/d/churn/3/notes.md"):
            assert (await session.error("resources/read", uri=uri))[0] == INVALID
            assert (await session.error("resources/directory/read", uri=uri.rpartition("/")[0]))[0] == INVALID

    use(served, hidden, scope=Scope.of((), ("my%share.d.t",)))


@meets(odd=10, versions=5)
@given(st.sampled_from(sorted(TEMPLATES)), st.tuples(NAMES, NAMES, NAMES), st.lists(NAMES, max_size=3), st.integers(0))
def test_uri_leads_back_to_its_file(scheme: str, names: Any, path: list[str], version: int) -> None:
    """An address that can be made has one URI of printable ASCII, and no part of it is read as a separator."""
    try:
        asset = AssetName(*names)
    except DeltaSharingError:
        return
    met("odd", any(not one.isascii() or "%" in one for one in (*names, *path)))
    met("versions", scheme == "model")
    address = Address(scheme, asset, "/".join(path), version % 10**18 if scheme == "model" else None)
    text = str(address)
    assert text.isascii()
    assert text.isprintable()
    assert not set(text) & set(' #?<>"\\^`{|}')
    found = Address.parse(text)
    assert (found, str(found), found.asset.share) == (address, text, asset.share)


@meets(refused=5)
@given(st.text(max_size=30) | st.builds("skill://{}/{}/{}/{}".format, NAMES, NAMES, NAMES, NAMES))
def test_any_text_is_an_address_or_unknown(text: str) -> None:
    try:
        address = Address.parse(text)
    except NotFoundError:
        met("refused", True)
        return
    assert Address.parse(str(address)) == address

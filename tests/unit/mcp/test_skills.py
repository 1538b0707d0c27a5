"""Skills reach a host as SEP-2640 says; the oracle is ``hashlib`` over the provider's bytes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from delta_sharing_client.mcp import extension, skills
from delta_sharing_client.mcp.limits import Limits
from delta_sharing_client.mcp.scope import Scope
from tests.time_limits import HANGS, SOON, Stopwatch
from tests.unit.mcp.sessions import Session, Shelf, connected, digests, shelf

pytestmark = pytest.mark.server

INVALID, INTERNAL = -32602, -32603
ROOT = "skill://s/d/report"
MANIFEST = b"""\
---
name: report
description: 'Writes a report.'
version: 1.0
count: 10
yes-text: yes
day: 2026-01-02
ready: true
none: null
empty:
metadata: {author: "A \xc3\xa9", tags: [1, "1", ~], deep: {a: {b: 0x10}}}
---
# Report

</provider-data> <b> & "quotes"
"""
FRONTMATTER = {
    "name": "report",
    "description": "Writes a report.",
    "version": 1.0,
    "count": 10,
    "yes-text": "yes",
    "day": "2026-01-02",
    "ready": True,
    "none": None,
    "empty": None,
    "metadata": {"author": "A é", "tags": [1, "1", None], "deep": {"a": {"b": 16}}},
}
FILES = {
    "SKILL.md": MANIFEST,
    "references/lines.md": b"\xef\xbb\xbfa\r\nb\rc\n\x00 \xe2\x80\xa8 </provider-data>",
    "references/deep/empty": b"",
    "assets/logo.png": bytes(range(256)),
    "scripts/naïve #1 100%.py": "print('é')".encode(),
}


def front(name: str = "report", rest: str = "") -> bytes:
    return f"---\nname: {name}\ndescription: Does it.\n{rest}---\nText".encode()


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    with shelf(monkeypatch, "s.d.report", "s.d.other") as found:
        found.put("s.d.report", FILES)
        found.put("s.d.other", {"SKILL.md": front("other")})
        yield found


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def resources(entry: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(entry["resources"], key=lambda one: one["uri"])


def test_entry_has_front_matter_and_every_digest(shared: Shelf) -> None:
    async def use(session: Session) -> None:
        (other, entry), refused = await session.skills()
        assert refused == {}
        assert (other["uri"], entry["uri"]) == ("skill://s/d/other/SKILL.md", f"{ROOT}/SKILL.md")
        assert entry["frontmatter"] == FRONTMATTER
        assert {key: type(value) for key, value in entry["frontmatter"].items()} == {
            key: type(value) for key, value in FRONTMATTER.items()
        }
        quoted = {path.replace("ï", "%C3%AF").replace("%.", "%25.").replace(" ", "%20"): path for path in FILES}
        stated = {path.replace("#", "%23"): FILES[real] for path, real in quoted.items()}
        assert resources(entry) == digests(stated, f"{ROOT}/")
        assert entry["resources"][0]["uri"] == entry["uri"]
        for path, data in stated.items():
            assert await session.read(f"{ROOT}/{path}") == data
        got = await session.ask("skills/get", uri=entry["uri"])
        assert got["skill"] == entry
        assert (got["resultType"], got["cacheScope"]) == ("complete", "private")
        assert got["ttlMs"] > 0

    for mode in ("auto", "legacy"):
        connected(shared.server(), use, mode=mode)


def test_resources_and_directories_of_a_skill(shared: Shelf) -> None:
    async def use(session: Session) -> None:
        assert "io.modelcontextprotocol/skills" in (session.client.server_capabilities.extensions or {})
        listed = (await session.client.list_resources()).resources
        assert [(one.uri, one.name, one.description, one.mime_type, one.size) for one in listed] == [
            ("skill://s/d/other/SKILL.md", "other", "Does it.", "text/markdown", len(front("other"))),
            (f"{ROOT}/SKILL.md", "report", "Writes a report.", "text/markdown", len(MANIFEST)),
        ]
        root = (await session.ask("resources/directory/read", uri=ROOT))["resources"]
        assert [(one["uri"], one["mimeType"]) for one in root] == [
            (f"{ROOT}/SKILL.md", "text/markdown"),
            (f"{ROOT}/assets", "inode/directory"),
            (f"{ROOT}/references", "inode/directory"),
            (f"{ROOT}/scripts", "inode/directory"),
        ]
        below = (await session.ask("resources/directory/read", uri=f"{ROOT}/references"))["resources"]
        assert [one["uri"] for one in below] == [f"{ROOT}/references/deep", f"{ROOT}/references/lines.md"]
        for uri in (f"{ROOT}/SKILL.md", f"{ROOT}/nope", f"{ROOT}/", "skill://s/d/nope", "skill://s", "skill://", ""):
            assert (await session.error("resources/directory/read", uri=uri))[0] == INVALID
        assert (await session.error("resources/directory/read", uri=ROOT, cursor="x"))[0] == INVALID

    connected(shared.server(), use)


@pytest.mark.parametrize(
    "uri",
    [
        f"{ROOT}/nope",
        ROOT,
        f"{ROOT}/references",
        f"{ROOT}/../other/SKILL.md",
        f"{ROOT}/..%2Fother%2FSKILL.md",
        f"{ROOT}/%2E%2E/other/SKILL.md",
        f"{ROOT}//SKILL.md",
        f"{ROOT}/SKILL.md/",
        f"{ROOT}/SKILL.md%00",
        "skill://S/d/report/SKILL.md",
        "skill://s/d/Report/SKILL.md",
        "skill://s/d/unknown/SKILL.md",
        "skill://x/y/z/SKILL.md",
        "skill:/s/d/report/SKILL.md",
        "file:///etc/passwd",
        "https://host.invalid/x?sig=planted",
        "volume://s/d/report/SKILL.md",
        "model://s/d/report/x/SKILL.md",
        "model://s/d/report/99999999999999999999/a",
        "",
    ],
)
def test_uri_that_is_not_served_is_invalid(shared: Shelf, uri: str) -> None:
    async def use(session: Session) -> None:
        for method in ("resources/read", "skills/get"):
            code, message = await session.error(method, uri=uri)
            assert code == INVALID
            assert "sig=planted" not in message

    connected(shared.server(), use)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"a.md": b"x"}, "has no SKILL.md"),
        ({"skill.md": front()}, "has no SKILL.md"),
        ({"SKILL.md": b"# Report"}, "a front matter with name and description .* found none"),
        ({"SKILL.md": b"---\nname: report\n---\n"}, "its description is missing"),
        ({"SKILL.md": b"---\nname: report\ndescription: 5\n---\n"}, "its description is missing or is no text"),
        ({"SKILL.md": front("reports")}, "Expected the name 'report' .* found 'reports'"),
        ({"SKILL.md": front("Report")}, "Expected the name 'report' .* found 'Report'"),
        ({"SKILL.md": front() + b"\xff"}, "Expected UTF-8"),
        ({"SKILL.md": front(rest="a: &a [x]\nb: [*a, *a]\n")}, r"the alias '\*a'"),
        ({"SKILL.md": front(rest="<<: {a: b}\n")}, "a merge key"),
        ({"SKILL.md": front(rest="a: " + "[" * 60 + "]" * 60 + "\n")}, "nested deeper than 50"),
        ({"SKILL.md": front(rest="a: .inf\n")}, "which JSON does not have"),
        ({"SKILL.md": front(rest="a: !!python/name:os.system x\n")}, "the tag"),
        ({"SKILL.md": front(rest=f"a: {'x' * 70_000}\n")}, "more than 65,536"),
        ({"SKILL.md": front(), "A.md": b"1", "a.md": b"2"}, "beside .* do not distinguish"),
        ({"SKILL.md": front(), "D/a": b"1", "d/b": b"2"}, "beside .* do not distinguish"),
        ({"SKILL.md": front(), "e\u0301": b"1", "\xe9": b"2"}, "beside .* do not distinguish"),
        ({"SKILL.md": front(), "skill.MD": b"2"}, "beside .* do not distinguish"),
        ({"SKILL.md": front(), "a": b"1", "a/b": b"2"}, "beside .* do not distinguish"),
        ({"SKILL.md": front(), "../x": b"1"}, "which no directory can hold"),
        ({"SKILL.md": front(), "a//b": b"1"}, "which no directory can hold"),
        ({"SKILL.md": front(), **{f"{n}": b"" for n in range(512)}}, "more than 512 files"),
        ({"SKILL.md": front(), "big": bytes(16 * 1024 * 1024 - len(front()) + 1)}, "has 16,777,217 bytes"),
    ],
)
def test_skill_that_no_host_could_load_is_named(
    shared: Shelf, caplog: pytest.LogCaptureFixture, files: dict[str, bytes], reason: str
) -> None:
    shared.put("s.d.report", files)

    async def use(session: Session) -> None:
        for _ in range(2):
            entries, refused = await session.skills()
            assert [one["uri"] for one in entries] == ["skill://s/d/other/SKILL.md"]
            assert list(refused) == [f"{ROOT}/SKILL.md"]
            assert re.search(reason, refused[f"{ROOT}/SKILL.md"])
        for method in ("skills/get", "resources/read"):
            assert (await session.error(method, uri=f"{ROOT}/SKILL.md"))[0] == INVALID
        assert (await session.error("resources/directory/read", uri=ROOT))[0] == INVALID
        told = await session.client.call_tool("read_skill", {"name": "s.d.report", "path": next(iter(files))})
        assert "../x" in files or told.is_error or "warning" in told.structured_content["data"]

    with caplog.at_level(logging.WARNING):
        connected(shared.server(), use)
    assert len([one for one in caplog.records if one.name == skills.__name__]) == 1


def test_largest_skills_are_served(shared: Shelf) -> None:
    many = {"SKILL.md": front(), **{f"d/{n:03}": str(n).encode() for n in range(511)}}
    large = {"SKILL.md": front("other"), "big": bytes(16 * 1024 * 1024 - len(front("other")))}
    shared.put("s.d.report", many)
    shared.put("s.d.other", large)

    async def use(session: Session) -> None:
        (other, entry), refused = await session.skills()
        assert refused == {}
        assert resources(entry) == digests(many, f"{ROOT}/")
        assert resources(other) == digests(large, "skill://s/d/other/")
        children = await session.ask("resources/directory/read", uri=f"{ROOT}/d")
        rest = await session.ask("resources/directory/read", uri=f"{ROOT}/d", cursor=children["nextCursor"])
        assert len(children["resources"]) + len(rest["resources"]) == 511
        assert "nextCursor" not in rest

    connected(shared.server(), use)


def test_files_are_downloaded_again_only_if_they_change(shared: Shelf) -> None:
    async def use(session: Session) -> None:
        first, _ = await session.skills()
        assert len(shared.reads()) == len(FILES) + 1
        again, _ = await session.skills()
        assert (again, shared.reads()) == (first, [])
        changed = {**FILES, "references/lines.md": b"new", "more.md": b"more"}
        shared.put("s.d.report", changed)
        (_, entry), _ = await session.skills()
        assert sorted(shared.reads()) == ["s.d.report/report/more.md", "s.d.report/report/references/lines.md"]
        assert {one["digest"] for one in resources(entry)} == {one["digest"] for one in digests(changed, f"{ROOT}/")}
        assert entry["frontmatter"] == FRONTMATTER
        shared.put("s.d.report", {"SKILL.md": front(rest="new: 1\n")})
        (_, entry), _ = await session.skills()
        assert entry["frontmatter"] == {"name": "report", "description": "Does it.", "new": 1}

    connected(shared.server(), use)


def test_read_after_a_change_has_the_new_digest(shared: Shelf) -> None:
    """A host that holds an old entry sees that the bytes differ, and gets the entry again."""

    async def use(session: Session) -> None:
        await session.skills()
        uri = f"{ROOT}/references/lines.md"
        shared.put("s.d.report", {**FILES, "references/lines.md": b"new"})
        assert await session.read(uri) == b"new"
        entry = (await session.ask("skills/get", uri=f"{ROOT}/SKILL.md"))["skill"]
        assert {one["uri"]: one["digest"] for one in entry["resources"]}[uri] == digest_of(b"new")
        shared.put("s.d.report", {"SKILL.md": MANIFEST})
        assert (await session.error("resources/read", uri=uri))[0] == INVALID

    connected(shared.server(), use)


@pytest.mark.parametrize("is_removed", [True, False])
def test_skill_that_changes_while_it_is_listed_is_listed_again(shared: Shelf, is_removed: bool) -> None:
    answer = shared.proxy._origin
    now = {**FILES, "references/lines.md": b"longer than before" * 9}
    if is_removed:
        del now["references/lines.md"]
    changes = 0

    def change(request: Any) -> Any:
        nonlocal changes
        if "lines.md" in request.path and changes == 0:
            changes = 1
            shared.put("s.d.report", now)
        return answer(request)

    shared.proxy._origin = change

    async def use(session: Session) -> None:
        (_, entry), refused = await session.skills()
        assert (refused, changes) == ({}, 1)
        assert sorted(one["digest"] for one in entry["resources"]) == sorted(one["digest"] for one in digests(now))

    connected(shared.server(), use)


def test_skill_that_is_never_as_listed_is_an_internal_error(shared: Shelf) -> None:
    answer = shared.proxy._origin

    def lose(request: Any) -> Any:
        if "lines.md" in request.path:
            shared.store.objects = {**shared.store.objects, "s.d.report/report/references/lines.md": b"x"}
            gone = shared.store.objects.pop("s.d.report/report/references/lines.md")
            found = answer(request)
            shared.store.objects["s.d.report/report/references/lines.md"] = gone
            return found
        return answer(request)

    shared.proxy._origin = lose

    async def use(session: Session) -> None:
        code, message = await session.error("skills/get", uri=f"{ROOT}/SKILL.md")
        assert code == INTERNAL
        assert "are not as they were listed: There is no file" in message

    connected(shared.server(), use)


def test_bytes_without_the_stated_digest_are_refused(shared: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that states the same version for other bytes: an error, and then the digest of the new bytes."""
    monkeypatch.setattr("tests.object_stores.etag", lambda kind, content: '"same"')

    async def use(session: Session) -> None:
        uri = f"{ROOT}/references/lines.md"
        await session.skills()
        new = FILES["references/lines.md"][::-1]
        shared.put("s.d.report", {**FILES, "references/lines.md": new})
        code, message = await session.error("resources/read", uri=uri)
        assert code == INTERNAL
        assert "was replaced while it was read" in message
        assert await session.read(uri) == new
        entry = (await session.ask("skills/get", uri=f"{ROOT}/SKILL.md"))["skill"]
        assert {one["uri"]: one["digest"] for one in entry["resources"]}[uri] == digest_of(new)

    connected(shared.server(), use)


@pytest.mark.parametrize("fault", ["truncate-body", "refused", "web-page", "expired"])
def test_skill_whose_store_fails_is_named(shared: Shelf, fault: str) -> None:
    async def use(session: Session) -> None:
        shared.proxy.set_fault(f"{fault}@data")
        entries, refused = await session.skills()
        assert entries == []
        assert set(refused) == {f"{ROOT}/SKILL.md", "skill://s/d/other/SKILL.md"}
        assert not re.search(r"planted|https?://", str(refused))
        code, message = await session.error("resources/read", uri=f"{ROOT}/references/lines.md")
        assert code == INTERNAL
        assert not re.search(r"planted|https?://", message)
        shared.proxy.faults.clear()
        assert len((await session.skills())[0]) == 2

    connected(shared.server(), use)


@pytest.mark.parametrize("fault", ["truncate-body:1", "cut-connection-after=10:1", "503-first:1"])
def test_store_that_fails_once_is_asked_again(shared: Shelf, fault: str) -> None:
    async def use(session: Session) -> None:
        shared.proxy.set_fault(f"{fault}@data")
        (_, entry), refused = await session.skills()
        assert refused == {}
        assert {one["digest"] for one in entry["resources"]} == {one["digest"] for one in digests(FILES)}

    connected(shared.server(), use)


def test_credentials_that_expire_are_renewed(shared: Shelf) -> None:
    used: Counter[str] = Counter()
    answer = shared.proxy._origin

    def expire(request: Any) -> Any:
        token = request.headers["x-amz-security-token"]
        used[token] += 1
        if used[token] == 4:
            shared.store.expired.add(token)
        return answer(request)

    shared.proxy._origin = expire

    async def use(session: Session) -> None:
        (_, entry), refused = await session.skills()
        assert (refused, entry["frontmatter"]) == ({}, FRONTMATTER)
        assert {one["digest"] for one in entry["resources"]} == {one["digest"] for one in digests(FILES)}
        assert await session.read(f"{ROOT}/SKILL.md") == MANIFEST
        assert shared.store.expired

    connected(shared.server(), use)


@pytest.mark.parametrize("method", ["skills/list", "skills/get", "resources/read", "resources/list"])
def test_cancelled_call_ends_at_once(shared: Shelf, method: str) -> None:
    """The store does not respond; the threads of the call end nevertheless."""
    begun, blocked = threading.Event(), threading.Event()
    answer = shared.proxy._origin

    def wait(request: Any) -> Any:
        if not request.is_listing:
            begun.set()
            blocked.wait(HANGS)
        return answer(request)

    shared.proxy._origin = wait
    server = shared.server()

    async def use(session: Session) -> None:
        params = {"uri": f"{ROOT}/SKILL.md"} if method in ("skills/get", "resources/read") else {}
        call = asyncio.create_task(session.ask(method, **params))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        clock = Stopwatch()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while server.calls.running:
            await asyncio.sleep(0.01)
        assert clock.within(SOON)

    try:
        connected(server, use)
    finally:
        blocked.set()


def test_call_that_takes_too_long_says_so(shared: Shelf) -> None:
    blocked = threading.Event()
    answer = shared.proxy._origin
    shared.proxy._origin = lambda request: (request.is_listing or blocked.wait(HANGS)) and answer(request)

    async def use(session: Session) -> None:
        code, message = await session.error("skills/get", uri=f"{ROOT}/SKILL.md")
        assert (code, message) == (INTERNAL, "The call took more than 1 seconds and was ended. Request less data.")

    try:
        connected(shared.server(Limits(seconds=1)), use)
    finally:
        blocked.set()


def test_pages_have_each_skill_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"s.{schema}.skill-{number}" for schema in "ba" for number in range(4)]
    monkeypatch.setattr(extension, "_MOST_LISTED", 3)
    with shelf(monkeypatch, *names) as shared:
        for name in names:
            shared.put(name, {"SKILL.md": front(name.rpartition(".")[2])})
        shared.put("s.a.skill-2", {"SKILL.md": b""})

        async def use(session: Session) -> None:
            entries, refused = await session.skills()
            expected = sorted(f"skill://{name.replace('.', '/')}/SKILL.md" for name in names)
            assert [one["uri"] for one in entries] == [uri for uri in expected if "a/skill-2" not in uri]
            assert list(refused) == ["skill://s/a/skill-2/SKILL.md"]
            for cursor in ("", "x", "5", "skill://s/a"):
                assert (await session.error("skills/list", cursor=cursor))[0] == INVALID

        connected(shared.server(), use)


def test_call_downloads_at_most_its_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"s.d.skill-{number}" for number in range(4)]
    with shelf(monkeypatch, *names) as shared:
        for name in names[:3]:
            shared.put(name, {"SKILL.md": front(name.rpartition(".")[2]), "data": bytes(600_000)})
        shared.put(names[3], {"SKILL.md": front("skill-3"), "data": bytes(1_000_000)})

        async def use(session: Session) -> None:
            first = await session.ask("skills/list")
            assert (len(first["skills"]), first["nextCursor"]) == (1, "skill://s/d/skill-0")
            entries, refused = await session.skills()
            assert [one["frontmatter"]["name"] for one in entries] == ["skill-0", "skill-1", "skill-2"]
            assert "may download at most 1 MB" in refused["skill://s/d/skill-3/SKILL.md"]

        connected(shared.server(Limits(megabytes=1)), use)


def test_only_the_scope_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    with shelf(monkeypatch, "mine.d.report", "hidden.d.report") as shared:
        for name in ("mine", "hidden"):
            shared.put(f"{name}.d.report", FILES)

        async def use(session: Session) -> None:
            entries, refused = await session.skills()
            assert [one["uri"] for one in entries] == ["skill://mine/d/report/SKILL.md"]
            assert refused == {}
            assert [one.uri for one in (await session.client.list_resources()).resources] == [entries[0]["uri"]]
            for method in ("skills/get", "resources/read"):
                code, message = await session.error(method, uri="skill://hidden/d/report/SKILL.md")
                assert (code, "hidden.d.report" in message) == (INVALID, True)
            assert (await session.error("resources/directory/read", uri="skill://hidden/d/report"))[0] == INVALID

        connected(shared.server(scope=Scope.of(("mine",), ())), use)

        async def nothing(session: Session) -> None:
            assert await session.skills() == ([], {})
            for share in ("mine", "hidden"):
                assert (await session.error("resources/read", uri=f"skill://{share}/d/report/SKILL.md"))[0] == INVALID

        connected(shared.server(scope=Scope.of((), ("mine.d.orders",))), nothing)


def test_tool_gives_the_same_without_the_extension(shared: Shelf) -> None:
    async def use(session: Session) -> None:
        async def call(**arguments: Any) -> Any:
            result = await session.client.call_tool("read_skill", {"name": "s.d.report", **arguments})
            return result.structured_content["data"] if not result.is_error else result.content[0].text

        first = await call()
        assert first["text"].encode() == MANIFEST
        assert sorted(first["files"], key=lambda one: one["path"]) == digests(FILES, name="path")
        assert (await call(path="references/lines.md"))["text"].encode() == FILES["references/lines.md"]
        assert "No resource is served" in await call(path="nope")
        assert "is not UTF-8" in await call(path="assets/logo.png")
        shown = ""
        shared.put("s.d.report", {"SKILL.md": front(), "long.md": b"<" * 50_000})
        while len(shown) < 50_000:
            part = await call(path="long.md", offset=len(shown))
            shown += part["text"]
            assert ("cut" in part) is (len(shown) < 50_000)
        assert shown == "<" * 50_000

    connected(shared.server(), use)

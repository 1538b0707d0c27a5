"""The page of ``delta-sharing browse`` in Chromium: all its functions, with mouse and keyboard."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import openpyxl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import requests

from delta_sharing_client.browse import page as page_module
from delta_sharing_client.browse.page import Running, running
from mock_server import catalog
from tests.browser.chromium import Chromium
from tests.hostile import HOSTILE, SKILL, TABLES, VOLUME, file_name, hostile_share
from tests.http_server import Exchange, HttpServer
from tests.time_limits import HANGS, Stopwatch

pytestmark = pytest.mark.browser

READERS: dict[str, Callable[[Path], int]] = {
    "CSV": lambda path: pa_csv.read_csv(path).num_rows,
    "Parquet": lambda path: pq.read_table(path).num_rows,
    "Arrow": lambda path: pa.ipc.open_file(path).read_all().num_rows,
    "Excel": lambda path: (openpyxl.load_workbook(io.BytesIO(path.read_bytes())).active.max_row or 0) - 1,  # type: ignore[union-attr]
}


def open_orders(browser: Chromium, page: Running) -> None:
    browser.go("about:blank")
    browser.go(page.address)
    browser.click(".node", "shop")
    browser.click(".node", "orders")
    browser.see("h2", "orders")


def test_click_in_the_tree_opens_a_table(browser: Chromium, page: Running, pictures: Path) -> None:
    open_orders(browser, page)
    # The token was removed from the URL, and no script can read the cookie.
    assert browser.run("location.href").endswith("#table/demo/shop/orders/Rows")
    assert "token" not in browser.run("location.href + document.cookie")
    assert browser.run("document.cookie") == ""
    assert "2,755 rows" in browser.see("#view .soft", "2,755 rows")
    summary = browser.see("#view .soft", "columns")
    for part in ("6 columns", "101.2 kB in 12 files", "version 6", "partitioned by country"):
        assert part in summary
    browser.click("[role=tab]", "Columns")
    assert "partition" in browser.see("td.name", "country")
    assert browser.see("dl.facts", "delta.enableChangeDataFeed")
    browser.picture(pictures / "columns.png")
    # Reload the page, and go back.
    browser.send("Page.reload")
    browser.see(".node.open", "orders")
    browser.click(".node", "weather")
    browser.click(".node", "readings")
    browser.see("h2", "readings")
    browser.run("history.back()")
    browser.see("h2", "orders")


def test_rows_follow_the_chosen_columns_filter_and_version(browser: Chromium, page: Running, pictures: Path) -> None:
    open_orders(browser, page)
    browser.click("[role=tab]", "Rows")
    summary = browser.see(".result .soft", "The first 100 rows")
    assert "downloaded: " in summary
    assert "Planned: about " in summary
    browser.click("summary", "All 6 columns")
    for name in ("order_id", "amount"):
        browser.click(".boxes label", name)
    browser.click("[data-field=filter]")
    browser.type("amout > 100 AND country = 'DE'")
    browser.press("Enter")
    assert "Did you mean 'amount'" in browser.see(".problem .reason", "amout")
    assert browser.run("document.querySelector('.where mark').textContent") == "amout"
    assert browser.run("getSelection().toString() || document.activeElement.value.slice(0, 5)") == "amout"
    browser.picture(pictures / "mistake.png")
    browser.run("document.querySelector('[data-field=filter]').select()")
    browser.type("amount > 100 AND country = 'DE'")
    browser.run("document.querySelector('.choice select').value = 'version'")
    browser.run("document.querySelector('.choice select').dispatchEvent(new Event('change'))")
    browser.type("2")
    browser.click("button", "Show rows")
    assert "of version 2" in browser.see(".result .soft", "of version 2")
    assert browser.run("[...document.querySelectorAll('thead th bdi')].map((one) => one.textContent)") == [
        "order_id",
        "amount",
    ]
    amounts = browser.run("[...document.querySelectorAll('.rows td:nth-child(2)')].map((one) => one.textContent)")
    assert len(amounts) > 10
    assert all(float(text) > 100 for text in amounts)
    browser.picture(pictures / "rows.png")
    browser.run("document.querySelector('.choice select').value = 'timestamp'")
    browser.run("document.querySelector('.choice select').dispatchEvent(new Event('change'))")
    browser.type("2026-01-08 12:00")
    browser.press("Enter")
    browser.see(".result .soft", "of version 3")


def cells(browser: Chromium, column: int) -> list[str]:
    found: list[str] = browser.run(
        f"[...document.querySelectorAll('.rows td:nth-child({column + 1})')].map((one) => one.textContent)"
    )
    return found


def test_rows_are_paged_and_sorted(browser: Chromium, page: Running, pictures: Path) -> None:
    open_orders(browser, page)
    browser.see(".result .soft", "The first 100 rows")
    first = cells(browser, 0)
    browser.click("button", "Next rows")
    browser.see(".result .soft", "Rows 101 to 200")
    assert not set(first) & set(cells(browser, 0))
    # The focus stays where it was.
    assert browser.run("document.activeElement.dataset.page") == "on"
    browser.picture(pictures / "page-2.png")
    browser.click("button", "Previous rows")
    browser.see(".result .soft", "The first 100 rows")
    assert cells(browser, 0) == first
    browser.click(".title", "amount")
    browser.see("th[aria-sort=ascending]", "amount")
    column = browser.run("[...document.querySelectorAll('.rows th')].findIndex((one) => one.title === 'amount')")
    amounts = [float(text) for text in cells(browser, column)]
    assert amounts == sorted(amounts)
    browser.press("Enter")
    browser.see("th[aria-sort=descending]", "amount")
    browser.picture(pictures / "sorted.png")
    greatest = [float(text) for text in cells(browser, column)]
    assert greatest == sorted(greatest, reverse=True)
    assert greatest[0] > max(amounts)
    browser.click(".title", "amount")
    browser.wait("!document.querySelector('[aria-sort]')")
    browser.see(".result .soft", "The first 100 rows")
    assert cells(browser, 0) == first


def test_a_cell_becomes_a_filter(browser: Chromium, page: Running, pictures: Path) -> None:
    open_orders(browser, page)
    browser.click(".rows td", "US")
    assert "country is US" in browser.see(".offered", "country is")
    browser.picture(pictures / "cell.png")
    browser.click("button", "Only these rows")
    browser.wait("document.querySelector('[data-field=filter]').value === \"country = 'US'\"")
    browser.see(".result .soft", "The first 100 rows")
    column = browser.run("[...document.querySelectorAll('.rows th')].findIndex((one) => one.title === 'country')")
    browser.wait(
        f"[...document.querySelectorAll('.rows td:nth-child({column + 1})')].every((one) => one.textContent === 'US')"
    )
    # By keys: from the first cell to the right, and then its second button.
    browser.run("document.querySelector('.rows td').focus()")
    browser.press("ArrowDown", "ArrowRight", "ArrowLeft", "Enter")
    assert browser.run("document.activeElement.textContent") == "Only these rows"
    chosen = cells(browser, 0)[1]
    browser.press("Tab", "Enter")
    browser.wait("document.querySelector('[data-field=filter]').value.includes(' AND ')")
    browser.see(".result .soft", "The first 100 rows")
    browser.wait(
        f"![...document.querySelectorAll('.rows td:first-child')].some((one) => one.textContent === '{chosen}')"
    )


def test_columns_have_statistics(browser: Chromium, page: Running, pictures: Path) -> None:
    open_orders(browser, page)
    browser.click("[role=tab]", "Columns")
    browser.click("button", "Statistics of amount")
    assert "2,755" in browser.see(".facts-of-column dl", "Rows")
    browser.click("button", "Read the values")
    assert browser.see(".facts-of-column dl", "Different values")
    browser.wait("document.querySelectorAll('.facts-of-column tbody tr').length > 20")
    browser.picture(pictures / "statistics.png")
    browser.run("document.getElementById('view').scrollTop = 10000")
    browser.picture(pictures / "histogram.png")
    browser.click("button", "Statistics of country")
    browser.click("button", "Read the values")
    assert "DE" in browser.see(".facts-of-column td", "DE")
    browser.picture(pictures / "values.png")


def test_history_shows_bars_and_the_changes_of_a_version(browser: Chromium, page: Running, pictures: Path) -> None:
    open_orders(browser, page)
    browser.click("[role=tab]", "History")
    assert browser.see(".bars", "245 deletes")
    widths = browser.run(
        "[...document.querySelectorAll('.bar.insert')].map((one) => one.getBoundingClientRect().width)"
    )
    assert max(widths) == widths[-1] > 50
    browser.click("button", "Changes of version 3")
    browser.see("h3", "Changes of version 3")
    browser.see(".rows td", "delete")
    browser.picture(pictures / "history.png")
    path = browser.take(lambda: browser.click("#view p button", "CSV"))
    assert READERS["CSV"](path) == 245
    browser.click("#tray button", "Close")


@pytest.mark.parametrize("form", READERS)
def test_downloads_are_saved(browser: Chromium, page: Running, pictures: Path, form: str) -> None:
    open_orders(browser, page)
    browser.click("[role=tab]", "Download")
    assert "about 101.9 kB from 12 files, 2,755 rows, version 6" in browser.see(".result p", "The download takes")
    path = browser.take(lambda: browser.click(".formats button", form))
    assert READERS[form](path) == 2755
    assert "2,755 rows" in browser.see("#tray .how", "Handed to your browser")
    browser.picture(pictures / "download.png")
    browser.click("#tray button", "Close")
    browser.wait("document.getElementById('tray').hidden")


def test_download_shows_progress_and_can_be_cancelled(
    browser: Chromium, serve: Any, tmp_path: Path, pictures: Path
) -> None:
    noise = pa.table({"n": range(500_000), "text": [str(number * 7919 % 1_000_003) for number in range(500_000)]})
    for start in range(0, 500_000, 50_000):
        deltalake.write_deltalake(tmp_path / "t", noise.slice(start, 50_000), mode="append")
    served = serve(tables={"s.d.t": tmp_path / "t"}, bandwidth=1_000_000)
    with running(str(served.profile_path)) as page:
        browser.go(page.address)
        browser.click(".node.table", "t")
        browser.click("[role=tab]", "Download")
        browser.click(".formats button", "CSV")
        browser.see("#tray .how", "of about")
        browser.wait("document.querySelector('#tray progress').value > 0")
        browser.picture(pictures / "progress.png")
        browser.click("#tray button", "Cancel")
        browser.see("#tray .how", "Cancelled")
        browser.wait("!document.querySelector('#tray progress')")
        assert all(one.state != "running" for one in page.session.downloads.values())
        assert list(page.session.folder.glob("*")) == []
        browser.click("#tray button", "Close")


def test_slow_read_ends_when_stopped_or_left(browser: Chromium, serve: Any, tmp_path: Path, pictures: Path) -> None:
    for name in ("t", "u"):
        deltalake.write_deltalake(tmp_path / name, pa.table({"text": [str(n * 7919) for n in range(200_000)]}))
    served = serve(tables={f"s.d.{name}": tmp_path / name for name in ("t", "u")}, bandwidth=20_000)
    with running(str(served.profile_path)) as page:
        browser.go(page.address)
        browser.click(".node.table", "t")
        browser.click("[role=tab]", "Rows")
        browser.see(".waiting", "Downloading about")
        browser.see(".waiting button", "Stop")
        browser.picture(pictures / "slow.png")
        browser.click(".waiting button", "Stop")
        browser.see(".waiting", "Stopped.")
        idle(served)
        browser.click("button", "Try again")
        busy(served)
        browser.click("[role=tab]", "Code")
        browser.see("[data-program]")
        idle(served)
        browser.click("[role=tab]", "Rows")
        busy(served)
        browser.click(".node.table", "u")
        browser.see("h2", "u")
        idle(served)


def idle(served: Any) -> None:
    """Wait until the server sends nothing."""
    clock = Stopwatch()
    while not served.app.stats.idle:
        assert clock.within(HANGS)


def busy(served: Any) -> None:
    """Wait until the server sends a response."""
    clock = Stopwatch()
    while served.app.stats.idle:
        assert clock.within(HANGS)


def test_code_can_be_copied(browser: Chromium, page: Running, pictures: Path) -> None:
    open_orders(browser, page)
    browser.send("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.click("[role=tab]", "Code")
    browser.see("h3", "Command line")
    browser.picture(pictures / "code.png")
    for name in ("pandas", "Polars", "DuckDB", "Spark", "Command line"):
        browser.click("button", f"Copy the code for {name}")
        code = browser.run(f"document.querySelector('[data-program=\"{name}\"] pre').textContent")
        assert "demo.shop.orders" in code
        browser.wait(f"navigator.clipboard.readText().then ? {json.dumps(True)} : false")
        assert browser.run("navigator.clipboard.readText()") == code
    token = page.session.client._rest.profile.credentials
    assert "bearerToken" not in browser.run("document.body.innerText")
    assert token


def test_files_can_be_viewed(browser: Chromium, page: Running, pictures: Path) -> None:
    open_orders(browser, page)
    browser.click(".node", "documents")
    browser.click(".link", "prices.csv")
    assert browser.see(".look td", "chair")
    browser.click(".link", "README.txt")
    assert "The documents of a small shop" in browser.see(".look pre", "small shop")
    browser.click(".link", "pictures/")
    browser.click(".link", "sign.png")
    browser.wait("document.querySelector('.picture')?.naturalWidth === 32")
    browser.picture(pictures / "files.png")
    path = browser.take(lambda: browser.click("button", "Download sign.png"))
    assert path.read_bytes().startswith(b"\x89PNG")
    browser.click("#tray button", "Close")
    browser.click(".link", "All files")
    browser.see(".link", "reports/")


def test_skills_and_model_versions_can_be_viewed(browser: Chromium, page: Running, pictures: Path) -> None:
    open_orders(browser, page)
    browser.click(".node", "sales-report")
    assert browser.see(".look h4", "Sales report")
    browser.click("button", "Show as text")
    assert "# Sales report" in browser.see(".look pre", "# Sales report")
    browser.picture(pictures / "skill.png")
    browser.click(".node", "churn")
    browser.see("td", "READY")
    browser.click(".link", "Files of version 2")
    browser.click(".link", "MLmodel")
    assert "flavors" in browser.see(".look pre", "flavors")
    browser.picture(pictures / "model.png")


def test_iceberg_table_has_a_history_and_rows(browser: Chromium, page: Running) -> None:
    browser.go("about:blank")
    browser.go(page.address)
    browser.click(".node", "lake")
    browser.click(".node", "refunds")
    browser.see("h2 .tag", "Iceberg")
    browser.click("[role=tab]", "History")
    browser.see("td", "append")
    browser.click("[role=tab]", "Rows")
    browser.see(".rows td")


def test_page_can_be_used_with_the_keyboard_alone(browser: Chromium, page: Running, pictures: Path) -> None:
    browser.go("about:blank")
    browser.go(page.address)
    browser.see(".node", "shop")
    browser.press("/")
    assert browser.run("document.activeElement.id") == "search"
    browser.type("ord")
    browser.see("#found", "1 name found")
    browser.press("Enter")
    assert browser.run("document.activeElement.id") == "tree"
    assert "orders" in browser.see(".node.here", "orders")
    browser.picture(pictures / "keyboard.png")
    browser.press("Enter")
    browser.see("h2", "orders")
    browser.press("Home")
    assert "demo" in browser.see(".node.here", "demo")
    for _ in range(3):
        browser.press("Tab")
    browser.run("document.querySelector('[role=tab][aria-selected=true]').focus()")
    browser.see(".rows td")
    browser.press("ArrowRight")
    browser.see("td.name", "country")
    browser.press("ArrowLeft", "ArrowLeft")
    browser.see("[data-program]")
    browser.press("Tab")
    assert browser.run("document.activeElement.getAttribute('role')") == "tabpanel"
    browser.run("document.getElementById('search').focus()")
    browser.press("Escape")
    browser.wait("document.getElementById('found').textContent === ''")
    browser.run("document.getElementById('tree').focus()")
    browser.press("Home", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown", "Enter")
    browser.see("#view h2")
    browser.go("about:blank")
    browser.go(page.address)
    browser.click("button.link", "demo")
    browser.see(".node.here", "demo")


def test_page_stays_fast_with_ten_thousand_tables(
    browser: Chromium, serve: Any, tmp_path: Path, pictures: Path
) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.table({"a": [1]}))
    entries = [
        catalog.entry("big", "most" if number < 9_000 else "rest", f"table_{number:05}", tmp_path / "t")
        for number in range(10_000)
    ]
    served = serve(tables=catalog.build(entries))
    with running(str(served.profile_path)) as page:
        browser.go(page.address)
        browser.click(".node", "most")
        browser.see(".node.table", "table_00000")
        assert browser.run("document.querySelectorAll('.node').length") < 120
        browser.press("End")
        browser.see(".node.here", "rest")
        browser.press("ArrowUp")
        browser.see(".node.here", "table_08999")
        browser.click("#search")
        browser.type("table_09")
        browser.see("#found", "1,000 names found")
        assert browser.run("document.querySelectorAll('.node').length") < 120
        browser.click("button", "Search columns and comments, too")
        browser.see("#found", "in names, columns and comments.")
        browser.see("#found button", "Search the columns of 9,000 more tables")
        browser.picture(pictures / "many.png")
        # Scrolling is handled within a frame or two; the limit allows for a busy machine.
        slowest = browser.run(
            "(() => { const input = document.getElementById('search'), tree = document.getElementById('tree'); "
            "const began = performance.now(); tree.scrollTop = 20000; tree.dispatchEvent(new Event('scroll')); "
            "return performance.now() - began; })()"
        )
        assert slowest < 1000
        browser.run("document.getElementById('tree').scrollTop = 0")
        browser.click(".node", "table_09000")
        browser.see("h2", "table_09000")


def test_one_of_two_thousand_columns_is_found_and_read(
    browser: Chromium, serve: Any, tmp_path: Path, pictures: Path
) -> None:
    wide = pa.table({f"column_{number:04}": [number, None] for number in range(2000)})
    deltalake.write_deltalake(tmp_path / "t", wide)
    served = serve(tables={"s.d.wide": tmp_path / "t"})
    with running(str(served.profile_path)) as page:
        browser.go(page.address)
        browser.click(".node", "wide")
        browser.see("#view .soft", "2,000 columns")
        browser.click("[role=tab]", "Columns")
        browser.click("[aria-label='Filter columns']")
        browser.type("1999")
        browser.wait("document.querySelectorAll('#view tbody tr').length === 1")
        browser.click("[role=tab]", "Rows")
        browser.see(".note", "the first 200 are shown")
        browser.picture(pictures / "wide.png")
        browser.click("summary", "All 2,000 columns")
        browser.click("[aria-label='Filter columns to choose']")
        browser.type("column_199")
        browser.click(".boxes label", "column_1999")
        browser.click("button", "Show rows")
        browser.wait("document.querySelectorAll('.rows th').length === 1")
        assert browser.run("[...document.querySelectorAll('.rows td')].map((one) => one.textContent)") == [
            "1999",
            "null",
        ]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_tab_fits_a_phone_in_light_and_dark_mode(
    browser: Chromium, page: Running, pictures: Path, dark: bool
) -> None:
    name = "dark" if dark else "light"
    browser.look_like(390, 780, dark=dark)
    browser.go("about:blank")
    browser.go(page.address)
    browser.see(".node", "shop")
    browser.picture(pictures / f"phone-tree-{name}.png")
    browser.click(".node", "shop")
    browser.click(".node", "orders")
    browser.see("h2", "orders")
    for tab in ("Columns", "Rows", "History", "Download", "Code"):
        browser.click("[role=tab]", tab)
        browser.wait("document.querySelector('[role=tabpanel] :is(table, .formats, pre)')")
        browser.picture(pictures / f"phone-{tab.lower()}-{name}.png")
        # The page itself never scrolls horizontally.
        assert browser.run("document.getElementById('view').scrollWidth") <= 390
        assert browser.run("document.documentElement.scrollWidth") <= 390
    browser.look_like(1200, 800, dark=dark)
    browser.picture(pictures / f"desk-{name}.png")
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark


def test_local_file_opens_the_page_and_is_deleted(
    browser: Chromium, page: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a desktop, a local file opens the URL, so the page is reached from another site."""
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    assert page_module._open(page)
    browser.run("sessionStorage.clear()")
    browser.send("Network.clearBrowserCookies")
    browser.go(page.opener.as_uri())
    browser.see(".node", "shop")
    assert browser.run("location.pathname + location.search") == "/"
    assert not page.opener.exists()


def test_page_of_another_local_server_can_read_nothing(browser: Chromium, page: Running) -> None:
    """The other page comes from another user's server on this machine; browsers send it the cookies of ours."""
    stolen: list[str] = []

    def answer(exchange: Exchange) -> None:
        stolen.append(exchange.headers.get("Cookie", ""))
        exchange.reply(200, b"<!doctype html><title>foreign</title>", {"Content-Type": "text/html"})

    browser.go(page.address)
    browser.see(".node", "shop")
    ours = page.address.partition("/?")[0]
    with HttpServer(answer) as foreign:
        browser.go(f"{foreign.url}/")
        # Chromium sends the cookie there, which is why the page also needs a key.
        name, _, cookie = next(one for one in stolen if "delta-sharing" in one).partition("=")
        attack = """async (ours, options) => { try { return await (await fetch(ours, options)).text(); }
                    catch (error) { return 'refused'; } }"""
        post = {"method": "POST", "body": "{}", "credentials": "include"}
        for path, options in (
            ("/api/start", post),
            ("/api/start", {**post, "mode": "no-cors"}),
            ("/api/start", {**post, "headers": {"Content-Type": "application/json"}}),
            ("/", {"credentials": "include"}),
            ("/page.js", {"credentials": "include", "mode": "no-cors"}),
        ):
            reply = browser.run(f"({attack})({json.dumps(ours + path)}, {json.dumps(options)})")
            assert reply in ("", "refused")
        loaded = browser.run(
            f"new Promise((done) => {{ const frame = document.createElement('iframe'); frame.src = {json.dumps(ours)}; "
            "frame.onload = () => { let text = ''; try { text = frame.contentDocument.body.innerText; } catch {} "
            "done(text); }; document.body.append(frame); })"
        )
        assert "Shared data" not in loaded
        script = browser.run(
            f"new Promise((done) => {{ const one = document.createElement('script'); one.src = '{ours}/page.js'; "
            "one.type = 'module'; one.onload = () => done('run'); one.onerror = () => done('refused'); "
            "document.head.append(one); })"
        )
        assert script == "refused"
        foreign.shutdown()
    # The stolen cookie alone grants nothing.
    headers = {"Origin": ours, "Content-Type": "application/json", "Cookie": f"{name}={cookie}"}
    assert requests.post(f"{ours}/api/start", data="{}", headers=headers, timeout=HANGS).status_code == 401
    # Chromium has reported the refused requests and the error page in the frame; these are expected.
    browser.go("about:blank")
    browser.problems.clear()
    browser.requested.clear()


def test_hostile_strings_are_shown_as_plain_text(browser: Chromium, serve: Any, tmp_path: Path, pictures: Path) -> None:
    served = serve(**hostile_share(tmp_path))
    with running(str(served.profile_path)) as page:
        browser.go(page.address)
        browser.see(".node.table")
        browser.picture(pictures / "hostile-tree.png")
        # Each name appears in the tree after scrolling.
        seen: set[str] = set()
        for step in range(0, len(TABLES) + 20, 15):
            browser.run(f"document.getElementById('tree').scrollTop = {step * 28}")
            seen |= set(
                browser.run(
                    "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done("
                    "[...document.querySelectorAll('.node .name')].map((one) => one.textContent)))))"
                )
            )
        plain = {name for name in TABLES if name.isprintable()}
        assert plain <= seen
        browser.run("document.getElementById('tree').scrollTop = 0")
        for name in TABLES[::20]:
            parts = ["table", "s", "d", name, "Columns"]
            browser.run(f"location.hash = '#' + {json.dumps(parts)}.map(encodeURIComponent).join('/')")
            browser.see("#view td .comment")
            shown = browser.run("document.querySelector('h2 bdi').textContent")
            assert shown == name or not name.isprintable()
            assert browser.run("document.title").endswith("Shared data")
        for tab in ("Rows", "History", "Download", "Code"):
            browser.click("[role=tab]", tab)
            browser.wait("document.querySelector('[role=tabpanel] :is(table, .formats, pre, .note)')")
            browser.picture(pictures / f"hostile-{tab.lower()}.png")
        browser.click("[role=tab]", "Rows")
        browser.see(".rows td")
        values = browser.run("[...document.querySelectorAll('.rows tbody tr')].map((one) => one.cells[0].textContent)")
        assert values == HOSTILE[:100]
        for kind, name in (("volume", VOLUME), ("skill", SKILL), ("model", VOLUME)):
            browser.run(
                f"location.hash = '#' + [{kind!r}, 's', 'd', {json.dumps(name)}].map(encodeURIComponent).join('/')"
            )
            browser.see("h2 .tag", kind)
        browser.run(
            f"location.hash = '#' + ['volume', 's', 'd', {json.dumps(VOLUME)}].map(encodeURIComponent).join('/')"
        )
        for path in ("picture.svg", "page.html", "rows.csv", "values.json", *map(file_name, HOSTILE[::20])):
            browser.wait(f"!!document.querySelector('[data-file=' + CSS.escape({json.dumps(path)}) + ']')")
            browser.run(f"document.querySelector('[data-file=' + CSS.escape({json.dumps(path)}) + ']').click()")
            browser.see(".look :is(pre, table)")
            assert browser.run("document.querySelector('#view :is(svg, img, script, iframe)')") is None
        browser.picture(pictures / "hostile-files.png")
        allowed = "document.querySelectorAll('script, iframe, img, svg, object, embed, base, form, style').length"
        assert browser.run(allowed) == 1
        assert browser.run("document.title") != "hit"


def test_page_explains_empty_shares_and_errors(browser: Chromium, serve: Any, tmp_path: Path, pictures: Path) -> None:
    served = serve(tables={})
    with running(str(served.profile_path)) as page:
        browser.go(page.address)
        browser.see("h2", "Nothing is shared with you yet")
        browser.picture(pictures / "empty.png")
        browser.go(page.address[:-1])
        assert "token of this address is wrong" in browser.see("body")
    old = {**served.profile, "expirationTime": "2020-01-01T00:00:00Z"}
    with running(old) as page:
        browser.go(page.address)
        assert "expired" in browser.see(".problem .reason")
        browser.picture(pictures / "expired.png")
        browser.run("sessionStorage.clear()")
        browser.go("about:blank")
        browser.go(page.address.partition("?")[0])
        assert "no access any more" in browser.see(".problem .reason")
    deltalake.write_deltalake(tmp_path / "t", pa.table({"a": range(10)}))
    served = serve(tables={"s.d.t": tmp_path / "t"})
    with running(str(served.profile_path)) as page:
        browser.go(page.address)
        browser.click(".node", "t", exact=False)
        browser.see("h2", "t")
        for part in (tmp_path / "t").glob("*.parquet"):
            part.unlink()
        browser.click("[role=tab]", "Rows")
        browser.see(".problem .reason")
        browser.picture(pictures / "lost.png")
        browser.see(".problem button", "Try again")
    browser.click("[role=tab]", "Code")
    assert "has ended" in browser.see(".problem .reason", "has ended")
    browser.picture(pictures / "ended.png")

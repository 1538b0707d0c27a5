"""The query box of the page in Chromium: typing with completed names, plan, rows, chart, downloads, code, stop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
from delta_sharing_client.browse import query_box
from delta_sharing_client.browse.page import Running, running
from tests.browser.chromium import Chromium
from tests.hostile import HOSTILE
from tests.time_limits import SOON, Stopwatch

pytestmark = pytest.mark.browser

QUERY = "SELECT country, count(*) AS orders, max(amount) AS most FROM demo.shop.orders GROUP BY country ORDER BY orders"
SIZES = (("desktop", 1280, 800), ("tablet", 820, 1100), ("phone", 390, 800))


@pytest.fixture(scope="module")
def page(serve_demo: Any) -> Iterator[Running]:
    with running(str(serve_demo.profile_path)) as found:
        yield found


@pytest.fixture(autouse=True)
def _no_problems(browser: Chromium, page: Running) -> Iterator[None]:
    browser.problems.clear()
    browser.requested.clear()
    browser.look_like(1280, 800)
    browser.go("about:blank")
    browser.go(page.address)
    browser.see("h2", "What is shared with you")
    browser.run("sessionStorage.removeItem('sql')")
    yield
    browser.send("Runtime.evaluate", expression="1")
    assert browser.problems == []
    # SQL is sent in bodies of requests, never in an address, and only to this machine.
    assert [url for url in browser.requested if not url.startswith(("http://127.0.0.1:", "about:"))] == []
    assert [url for url in browser.requested if "SELECT" in url.upper() or "?" in url.replace(page.address, "")] == []


def opened(browser: Chromium) -> None:
    browser.click("#to-query")
    browser.wait("document.activeElement?.matches('.query textarea')")


def typed(browser: Chromium, sql: str) -> None:
    browser.run("document.querySelector('.query textarea').select()")
    browser.type(sql)
    browser.press("Escape")


def value(browser: Chromium) -> str:
    text: str = browser.run("document.querySelector('.query textarea').value")
    return text


def listed(browser: Chromium) -> list[str]:
    found: list[str] = browser.run("[...document.querySelectorAll('.names li bdi')].map((one) => one.textContent)")
    return found


def test_names_are_completed_with_the_keyboard(browser: Chromium, pictures: Path) -> None:
    opened(browser)
    browser.type("SELECT * FROM de")
    browser.wait("document.querySelector('.names li[aria-selected=true]')")
    assert listed(browser) == ["demo"]
    browser.press("Enter")
    browser.wait("document.querySelectorAll('.names li').length === 3")
    assert listed(browser) == ["shop", "weather", "lake"]
    browser.press("ArrowDown", "ArrowUp")
    # Assistive technology is told which name is chosen.
    assert browser.run(
        "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).textContent"
    ).startswith("shop")
    browser.press("Enter")
    browser.wait("[...document.querySelectorAll('.names li')].some((one) => one.textContent.startsWith('orders'))")
    browser.press("Tab")
    assert value(browser) == "SELECT * FROM demo.shop.orders"
    browser.type(" AS o WHERE o.")
    browser.wait("document.querySelectorAll('.names li').length === 6")
    browser.picture(pictures / "query-names.png")
    browser.press("Escape")
    assert browser.run("document.querySelector('.names').hidden")
    browser.run("document.activeElement.setSelectionRange(7, 8)")
    browser.type("cou")
    browser.wait("document.querySelectorAll('.names li').length === 1")
    browser.click(".names li", "country")
    assert value(browser) == "SELECT country FROM demo.shop.orders AS o WHERE o."
    # The list closes when the text is left.
    browser.run("document.activeElement.blur()")
    assert browser.run("document.querySelector('.names').hidden")


def test_plan_comes_before_rows(browser: Chromium, page: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    browser.click(".node", "shop")
    browser.click(".node", "orders")
    browser.see("h2", "orders")
    opened(browser)
    # The first query is about the table that was open.
    assert value(browser) == "SELECT * FROM demo.shop.orders LIMIT 100"
    browser.click("[data-do=plan]")
    assert "from 12 files of 1 table" in browser.see("[data-cost]", "Downloads at most about 101.9 kB")
    assert browser.run("document.querySelectorAll('.rows td').length") == 0
    browser.click("summary", "What is read")
    browser.see("details pre", "Scan of demo.shop.orders")
    browser.click("[data-do=read]")
    browser.see(".result .soft", "100 rows. Downloaded")
    typed(browser, QUERY)
    browser.press("Escape")
    browser.run("document.querySelector('.query textarea').focus()")
    browser.send("Input.dispatchKeyEvent", type="keyDown", key="Enter", windowsVirtualKeyCode=13, modifiers=2)
    browser.see(".result .soft", "4 rows. Downloaded")
    client = ds.SharingClient(page.session.profile)
    expected = client.table("demo.shop.orders").to_pandas().groupby("country", dropna=False).size().sort_values()
    counts = browser.run("[...document.querySelectorAll('.rows td:nth-child(2)')].map((one) => one.textContent)")
    assert counts == [str(number) for number in expected]
    # A query that downloads much runs only after a click.
    monkeypatch.setattr(query_box, "ASKED_FROM", 1000)
    browser.click("[data-do=run]")
    browser.see(".result .note", "Running the query downloads at most about")
    assert browser.run("document.querySelectorAll('.rows td').length") == 0
    browser.click("[data-do=read]", "Run it")
    browser.see(".result .soft", "4 rows. Downloaded")


def test_mistake_is_told_and_a_reload_keeps_the_query(browser: Chromium) -> None:
    opened(browser)
    browser.click("[data-do=run]")
    browser.see(".problem .reason", "There is no query yet")
    typed(browser, "SELECT contry FROM demo.shop.orders")
    browser.click("[data-do=run]")
    browser.see(".problem .reason", "contry")
    assert browser.run("document.querySelector('.query textarea').getAttribute('aria-invalid')") == "true"
    typed(browser, "SELECT * FROM read_csv('/etc/passwd')")
    browser.click("[data-do=run]")
    browser.see(".problem .reason", "DuckDB cannot run the SQL")
    browser.send("Page.reload")
    browser.wait("document.activeElement?.matches('.query textarea')")
    assert value(browser) == "SELECT * FROM read_csv('/etc/passwd')"
    assert browser.run("location.hash") == "#query"


def test_hostile_values_stay_text(browser: Chromium) -> None:
    opened(browser)
    quoted = HOSTILE[0].replace("'", "''").replace("\0", "")
    typed(browser, f"""SELECT '<img src=x onerror=alert(1)>' AS "<b>x</b>", '{quoted}' AS other, 1 AS "<script>y" """)
    browser.click("[data-do=run]")
    browser.see(".result .soft", "1 row.")
    assert browser.run("document.querySelector('.rows td').textContent") == "<img src=x onerror=alert(1)>"
    assert browser.run("document.querySelectorAll('.result img, .result script, .result b').length") == 0
    browser.click("[data-tab=Chart]")
    browser.wait("document.querySelector('.chart canvas')")


def test_rows_are_drawn(browser: Chromium, pictures: Path) -> None:
    opened(browser)
    typed(browser, QUERY)
    browser.click("[data-do=run]")
    browser.see(".result .soft", "4 rows.")
    browser.click("[data-tab=Chart]")
    drawn = "Chart.getChart(document.querySelector('.chart canvas'))"
    browser.wait(f"!!{drawn}")

    def series() -> Any:
        return browser.run(f"{drawn}.data.datasets.map((one) => [one.label, one.data])")

    counts = browser.run(f"{drawn}.data.labels")
    assert (browser.run(f"{drawn}.config.type"), counts[0], len(counts)) == ("bar", "null", 4)
    assert [name for name, _ in series()] == ["orders"]
    browser.click(".chart-choice fieldset label", "most")
    browser.wait(f"{drawn}.data.datasets.length === 2")
    assert [name for name, _ in series()] == ["orders", "most"]
    assert "Bars of orders, most by country, 4 rows" in browser.run(
        "document.querySelector('.chart canvas').getAttribute('aria-label')"
    )
    # Something was drawn: the picture has more than one color.
    assert (
        browser.run(
            "(() => { const canvas = document.querySelector('.chart canvas'); const { data } = canvas.getContext('2d')"
            ".getImageData(0, 0, canvas.width, canvas.height); return new Set(new Uint32Array(data.buffer)).size; })()"
        )
        > 10
    )
    typed(browser, "SELECT day, avg(celsius) AS celsius FROM demo.weather.readings GROUP BY day ORDER BY random()")
    browser.click("[data-do=run]")
    browser.wait(f"{drawn}?.config.type === 'line'")
    days = browser.run(f"{drawn}.data.datasets[0].data.map((one) => one.x)")
    assert days == sorted(days)
    assert len(days) > 5
    for look, width, height in SIZES:
        for is_dark in (False, True):
            browser.look_like(width, height, dark=is_dark)
            browser.run("new Promise((done) => setTimeout(done, 300))")
            browser.run("document.querySelector('.chart').scrollIntoView({block: 'end'})")
            browser.picture(pictures / f"query-chart-{look}{'-dark' if is_dark else ''}.png")
            assert browser.run("document.documentElement.scrollWidth <= innerWidth")


def test_whole_result_is_downloaded_and_code_is_shown(browser: Chromium, pictures: Path) -> None:
    opened(browser)
    sql = "SELECT order_id, order_id * 2 AS twice FROM demo.shop.orders ORDER BY order_id"
    typed(browser, sql)
    browser.click("[data-do=run]")
    browser.see(".result .soft", "The first 1,000 rows; a download has all")
    browser.click("[data-tab=Download]")
    path = browser.take(lambda: browser.click("[data-format=parquet]"))
    table = pq.read_table(path)
    assert table.num_rows == 2755
    assert table["twice"].to_pylist() == [2 * number for number in table["order_id"].to_pylist()]
    browser.see(".download .how", "2,755 rows")
    browser.click(".download button", "Close")
    browser.click("[data-tab=Code]")
    for name in ("pandas", "Polars", "DuckDB", "Spark", "Command line"):
        assert "order_id * 2" in browser.see(f'[data-program="{name}"] pre')
    browser.picture(pictures / "query-code.png")


def test_stop_ends_a_query(browser: Chromium) -> None:
    opened(browser)
    typed(browser, "SELECT count(*) FROM range(1000000000000) LEFT JOIN demo.shop.orders ON order_id = range")
    browser.click("[data-do=run]")
    browser.see(".waiting button", "Stop")
    watch = Stopwatch()
    browser.click(".waiting button", "Stop")
    browser.see(".waiting", "Stopped.")
    assert watch.within(SOON)
    # The page is free for the next query.
    typed(browser, "SELECT 1 AS one")
    browser.click("[data-do=run]")
    browser.see(".result .soft", "1 row.")


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize(("look", "width", "height"), SIZES)
def test_query_looks_right(
    browser: Chromium, pictures: Path, look: str, width: int, height: int, is_dark: bool
) -> None:
    browser.look_like(width, height, dark=is_dark)
    browser.run("document.body.classList.remove('choosing')")
    opened(browser)
    typed(browser, QUERY)
    browser.click("[data-do=run]")
    browser.see(".result .soft", "4 rows.")
    browser.picture(pictures / f"query-{look}{'-dark' if is_dark else ''}.png")
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    for name in ("#to-query", "[data-do=run]", "[data-do=plan]"):
        box = browser.run(
            f"(() => {{ const box = document.querySelector({json.dumps(name)}).getBoundingClientRect(); "
            "return [box.left, box.right]; })()"
        )
        assert 0 <= box[0] < box[1] <= width

"""The page for everybody: axe-core finds nothing serious, the keyboard reaches all, and a phone shows all buttons."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from delta_sharing_client.browse.page import Running, running
from tests.browser.chromium import SHIFT, Chromium

pytestmark = pytest.mark.browser

VIEWS = {
    "start": ("", "h2"),
    "rows": ("#table/demo/shop/orders/Rows", ".rows td"),
    "columns": ("#table/demo/shop/orders/Columns", "td.name"),
    "history": ("#table/demo/shop/orders/History", ".bars"),
    "download": ("#table/demo/shop/orders/Download", ".formats"),
    "code": ("#table/demo/shop/orders/Code", "[data-program]"),
    "iceberg": ("#table/demo/lake/refunds/History", ".still"),
    "volume": ("#volume/demo/shop/documents//prices.csv", ".look td"),
    "picture": ("#volume/demo/shop/documents/pictures/pictures%2Fsign.png", ".look h3"),
    "model": ("#model/demo/shop/churn/2//MLmodel", ".look pre"),
    "skill": ("#skill/demo/shop/sales-report", ".markdown h4"),
    "search": ("#volume/demo/shop/documents", ".link"),
    "query": ("#query", "#view button"),
    "missing": ("#table/demo/shop/none", ".problem .reason"),
}
SEARCH = """document.getElementById('menu').click(), document.getElementById('search').value = 'amount',
  document.getElementById('search').dispatchEvent(new Event('input'))"""
QUERY = """((box) => { box.value = 'SELECT country, count(*) AS n FROM demo.shop.orders GROUP BY country';
  box.dispatchEvent(new Event('input')); })(document.querySelector('.query textarea')),
  [...document.querySelectorAll('#view button')].find((one) => one.textContent === 'Run').click()"""
STEPS = {
    "columns": ("document.querySelector('.act button').click()", ".facts-of-column dl"),
    "rows": ("document.querySelector('summary').click(), document.querySelector('.rows td').click()", ".boxes label"),
    "search": (SEARCH, ".why"),
    "query": (QUERY, ".result td"),
    "history": ("document.querySelector('.act button').click()", ".result td"),
}
IS_SEEN = "one.checkVisibility({visibilityProperty: true})"
# The place of the focused control among the wanted ones, and whether its focus and all of it can be seen.
FOCUS = """(() => {
  const one = document.activeElement;
  const style = getComputedStyle(one);
  const box = one.getBoundingClientRect();
  const isShown = (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1) || one.id === 'tree';
  const isInside = box.right > 0 && box.left < innerWidth && box.bottom > 0 && box.top < innerHeight;
  return one === document.body ? null : [wanted.indexOf(one), isShown && isInside ? '' : one.outerHTML.slice(0, 200)];
})()"""
WITHIN = """(one) => {
  one.scrollIntoView({block: 'center', inline: 'nearest'});
  for (let up = one; up; up = up.parentElement) up.scrollLeft = 0;
  const box = one.getBoundingClientRect();
  const at = document.elementFromPoint(box.left + box.width / 2, box.top + Math.min(10, box.height / 2));
  return box.left >= 0 && box.right <= innerWidth && (one.contains(at) || at?.contains(one));
}"""


def open_view(browser: Chromium, page: Running, name: str) -> None:
    place, selector = VIEWS[name]
    browser.go("about:blank")
    browser.go(page.address)
    browser.see("h2")
    if place:
        browser.go("about:blank")
        browser.go(f"http://127.0.0.1:{page.port}/{place}")
        browser.see(selector)
    if name in STEPS:
        step, then = STEPS[name]
        browser.run(step)
        browser.see(then)
    browser.wait("!document.querySelector('[aria-busy]')")


def violations(browser: Chromium, axe: str) -> list[str]:
    """Return what axe-core finds in the page."""
    if not browser.run("typeof axe === 'object'"):
        browser.run(axe + "; 0")
    passed, found = browser.run("axe.run(document).then((one) => [one.passes.length, one.violations])")
    assert passed > 15
    return [f"{one['impact']} {one['id']}: {[node['html'][:150] for node in one['nodes'][:3]]}" for one in found]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", VIEWS)
def test_axe_finds_nothing(browser: Chromium, page: Running, axe: str, pictures: Path, name: str, dark: bool) -> None:
    for size, width in (("desk", 1200), ("phone", 390)):
        browser.look_like(width, 800, dark=dark)
        open_view(browser, page, name)
        browser.picture(pictures / f"axe-{name}-{size}-{'dark' if dark else 'light'}.png")
        assert violations(browser, axe) == []


@pytest.mark.parametrize("name", VIEWS)
def test_tab_key_reaches_every_control(browser: Chromium, page: Running, name: str) -> None:
    open_view(browser, page, name)
    controls = "button, a[href], input, select, textarea, summary, [tabindex='0']"
    count = browser.run(
        f"(window.wanted = [...document.querySelectorAll({json.dumps(controls)})].filter((one) => {IS_SEEN} && "
        "!one.disabled && one.tabIndex >= 0)).length"
    )
    assert count > 3
    browser.run("document.querySelector('.skip').focus()")
    reached = {0}
    for _ in range(count + 3):
        browser.press("Tab")
        focus = browser.run(FOCUS)
        if focus is None:
            break
        place, unseen = focus
        assert unseen == ""
        reached.add(place)
    assert set(range(count)) <= reached
    browser.press("Tab", modifiers=SHIFT)
    assert browser.run(FOCUS) is not None


@pytest.mark.parametrize("name", VIEWS)
def test_phone_shows_every_button(browser: Chromium, page: Running, name: str) -> None:
    browser.look_like(390, 780)
    open_view(browser, page, name)
    outside = browser.run(
        f"[...document.querySelectorAll('button, a[href], input, select, summary')].filter((one) => {IS_SEEN} "
        f"&& !one.closest('.rows') && !one.matches('.skip') && !({WITHIN})(one)).map((one) => one.outerHTML)"
    )
    assert outside == []


@pytest.fixture(scope="module")
def long_names(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A table with columns whose names have 10,000 characters, also such that look like something else."""
    folder = tmp_path_factory.mktemp("long")
    names = ["n" * 10_000, "<b>" * 3333, "\u202e" + "gnp.exe " * 1250, "word " * 2000]
    fields = [
        {
            "name": name,
            "type": "string",
            "nullable": True,
            "metadata": {
                "comment": name,
                "delta.columnMapping.id": number + 1,
                "delta.columnMapping.physicalName": f"c{number}",
            },
        }
        for number, name in enumerate(names)
    ]
    deltalake.write_deltalake(folder, pa.table({f"c{number}": ["v" * 10_000] for number in range(len(names))}))
    log = folder / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})
            line["metaData"]["configuration"] = {
                "delta.columnMapping.mode": "name",
                "delta.columnMapping.maxColumnId": str(len(names)),
            }
            line["metaData"]["description"] = "d" * 10_000
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "files").mkdir()
    (folder / "files" / f"{'f' * 250}.txt").write_text("x" * 10_000)
    served = serve(tables={"s.d." + "t" * 200: folder}, volumes={"s.d." + "v" * 200: folder / "files"})
    with running(str(served.profile_path)) as page:
        yield page


@pytest.mark.parametrize("width", [390, 820, 1200])
def test_long_name_never_fills_the_page(browser: Chromium, long_names: Running, pictures: Path, width: int) -> None:
    browser.look_like(width, 800, dark=width == 820)
    browser.go("about:blank")
    browser.go(long_names.address)
    browser.see("h2")
    places = {tab: f"#table/s/d/{'t' * 200}/{tab}" for tab in ("Rows", "Columns", "History", "Download", "Code")}
    places["files"] = f"#volume/s/d/{'v' * 200}//{'f' * 250}.txt"
    for name, place in places.items():
        browser.go("about:blank")
        browser.go(f"http://127.0.0.1:{long_names.port}/{place}")
        browser.wait(
            "document.querySelector('#view :is(.rows td, td.name, .note, .formats, [data-program], .look pre)')"
        )
        if name == "Rows":
            browser.run("document.querySelector('summary').click()")
            browser.see(".boxes label")
            widest = "Math.max(...[...document.querySelectorAll('.rows :is(th, td)')].map((one) => one.offsetWidth))"
            assert browser.run(widest) <= 360
        browser.picture(pictures / f"long-{name.lower()}-{width}.png")
        assert browser.run("document.getElementById('view').scrollWidth") <= width
        assert browser.run("document.documentElement.scrollWidth") <= width
        tallest = (
            "Math.max(...[...document.querySelectorAll('#view :is(h2, h3, th, tr, label, summary, dt)')].map((one) => "
            "one.offsetHeight))"
        )
        assert browser.run(tallest) <= 300
    assert "\u202e" not in browser.run("document.body.textContent")

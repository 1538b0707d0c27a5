"""Names that fit the position in a query are offered, in the right quotes, and nothing else is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client import testing
from delta_sharing_client.browse import completion, query_box
from delta_sharing_client.browse.asked import Asked
from delta_sharing_client.browse.session import Session
from tests.quota import meets, met

ORDERS = pa.table({"order_id": [1], "Amount": [1.5], "order": ["x"], "a b": [1], 'q"q': [1]})
TABLES = {
    "s.d.orders": ORDERS,
    "s.d.other": pa.table({"order_day": [1]}),
    "s.e.more": pa.table({"z": [1]}),
    "two.d.t": pa.table({"y": [1]}),
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with testing.running(TABLES) as server:
        session_ = Session(server.profile, tmp_path_factory.mktemp("run"))
        yield session_
        session_.close()


def offered(session: Session, sql: str, *, everything: bool = False) -> list[str]:
    """Return the query after each name that is offered at the mark ``|``."""
    at = sql.index("|")
    text = sql.replace("|", "", 1)
    found: Any = completion.names(session, Asked({"sql": text, "at": at, "all": everything}))
    assert 0 <= found["from"] <= at <= found["to"] <= len(text)
    return [text[: found["from"]] + one["text"] + text[found["to"] :] for one in found["names"]]


@pytest.mark.parametrize(
    ("sql", "results"),
    [
        ("SELECT * FROM s|", ["SELECT * FROM s."]),
        ("SELECT * FROM S|", ["SELECT * FROM s."]),
        ("SELECT * FROM s.|", ["SELECT * FROM s.d.", "SELECT * FROM s.e."]),
        ("SELECT * FROM s.d.|", ["SELECT * FROM s.d.orders", "SELECT * FROM s.d.other"]),
        ("SELECT * FROM s.d.ot|", ["SELECT * FROM s.d.other"]),
        ("SELECT * FROM s.d.o|xyz WHERE", ["SELECT * FROM s.d.orders WHERE", "SELECT * FROM s.d.other WHERE"]),
        ("SELECT s.e.more.|", ["SELECT s.e.more.z"]),
        ('SELECT "ord| FROM s.d.orders', []),
        (
            'SELECT "ord|" FROM s.d.orders',
            ["SELECT order_id FROM s.d.orders", 'SELECT "order" FROM s.d.orders'],
        ),
        ("SELECT am| FROM s.d.orders", ["SELECT Amount FROM s.d.orders"]),
        ("SELECT ID| FROM s.d.orders", ["SELECT order_id FROM s.d.orders"]),
        ("SELECT a | FROM s.d.orders", []),
        ("SELECT o.q| FROM s.d.orders AS o", ['SELECT o."q""q" FROM s.d.orders AS o']),
        ("SELECT o.a| FROM s.d.orders o", ["SELECT o.Amount FROM s.d.orders o", 'SELECT o."a b" FROM s.d.orders o']),
        ("SELECT orders.am| FROM s.d.orders", ["SELECT orders.Amount FROM s.d.orders"]),
        ("SELECT p.order| FROM s.d.orders o, s.d.other p", ["SELECT p.order_day FROM s.d.orders o, s.d.other p"]),
        ("SELECT 's|' FROM s.d.orders", []),
        ("SELECT 1 -- s|", []),
        ("SELECT /* s| */ 1", []),
        ("SELECT * FROM nope.|", []),
        ("SELECT * FROM s.nope.|", []),
        ("SELECT nope| FROM s.d.gone", []),
        ("|", []),
    ],
)
def test_names_fit_the_position(session: Session, sql: str, results: list[str]) -> None:
    if "nope.|" in sql:
        with pytest.raises(completion.DeltaSharingError):
            offered(session, sql)
    else:
        assert offered(session, sql) == results


def test_all_names_come_on_request(session: Session) -> None:
    assert offered(session, "SELECT | FROM s.e.more", everything=True) == [
        "SELECT z FROM s.e.more",
        "SELECT s. FROM s.e.more",
        "SELECT two. FROM s.e.more",
    ]


def test_names_are_requested_once_a_minute(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    asked: list[int] = []
    monkeypatch.setattr("delta_sharing_client.browse.session.time.monotonic", lambda: now[0])
    for moment in (0, 10, 59, 61, 100):
        now[0] = 1e9 + moment
        session.remembered("key", lambda: asked.append(int(now[0] - 1e9)))
    assert asked == [0, 61]


def test_few_tables_are_looked_up(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []
    monkeypatch.setattr(completion, "_columns", lambda session, table: looked_up.append(str(table)) or [])
    named = ", ".join(f"s.d.t{number}" for number in range(50))
    assert offered(session, f"SELECT x| FROM {named}") == []
    assert looked_up == [f"s.d.t{number}" for number in range(8)]


def test_first_query_runs(session: Session) -> None:
    assert query_box.first(session, Asked({})) == {"sql": ""}
    first: Any = query_box.first(session, Asked({"name": ["s", "d", "order"]}))
    assert first == {"sql": 'SELECT * FROM s.d."order" LIMIT 100'}


@meets(quoted=20, reserved=5)
@given(
    st.text(min_size=1, max_size=9).filter(str.isprintable)
    | st.sampled_from(["order", "select", "user", "default", "window", "left", "Group"])
)
def test_quoted_name_means_the_same_to_duckdb(name: str) -> None:
    text = completion.quoted(name)
    met("quoted", text.startswith('"'))
    met("reserved", text == f'"{name}"' and name.isalpha() and name.isascii())
    relation = duckdb.sql(f"SELECT 1 AS {text}")
    assert relation.columns == [name]


@meets(paths=8, texts=8)
@given(
    st.lists(
        st.sampled_from(["s", "d", "s.d", "s.d.t", ".", '"', "'", " ", "--", "/*", "*/", "\n", "1", "é"]), min_size=3
    ).map("".join),
    st.integers(0, 30),
)
def test_any_text_has_a_span(text: str, at: int) -> None:
    tokens = list(completion._tokens(text))
    assert all(one.end <= other.start for one, other in itertools.pairwise(tokens))
    assert {text[token.start : token.end] for token in tokens} == {token.text for token in tokens}
    assert "".join(text.split()) == "".join("".join(token.text.split()) for token in tokens)
    completion._above(tokens, at)
    met("paths", any(len(path.names) > 1 for path in completion._paths(tokens, at)))
    met("texts", any(token.text.startswith(("'", "--", "/*")) for token in tokens))

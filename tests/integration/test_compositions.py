"""Options of a read, outputs and queries of engines are composed at random, and return the rows that plain Python
returns. ``python -m tools.soak compositions`` runs more cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.compositions.cases import EAGER, LAZY
from tests.compositions.run import SUBJECTS, Subject, served
from tests.effort import QUICK, examples
from tests.versions import parquet_settings

SEED = 1
_BY_INDEX = {"page_index", "late_columns", "cut_group", "stub_pages"}
# By default, a third of them: 2,000.
CASES = {"delta": 2400, "delta changes": 1800, "iceberg": 1800}
# At least so often is each decoder and shortcut used, by default.
USES: dict[str, Counter[str]] = {
    "delta": Counter(
        whole_file=100, row_groups=50, constant=5, page_index=10, late_columns=5, cut_group=20, stub_pages=20,
        dictionaries=8, vectors=100, packed=2, pushed=20,
    ),
    "delta changes": Counter(
        whole_file=100, row_groups=50, constant=5, page_index=10, late_columns=2, cut_group=20, stub_pages=20,
        dictionaries=10, vectors=50, windows=20, pushed=20,
    ),
    "iceberg": Counter(
        whole_file=100, row_groups=50, page_index=10, late_columns=2, cut_group=20, stub_pages=20,
        dictionaries=10, vectors=50, equality=50, packed=3, pushed=20,
    ),
}  # fmt: skip


def _unusable() -> set[str]:
    """Return what the installed versions of the libraries cannot do."""
    has_index = "write_page_index" in parquet_settings(write_page_index=True)
    return set() if has_index else _BY_INDEX


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Subject]]:
    with served(tmp_path_factory.mktemp("compositions")) as found:
        yield found


@pytest.mark.parametrize("name", SUBJECTS)
def test_compositions_equal_plain_python(subject: Callable[[str], Subject], name: str) -> None:
    uses: Counter[str] = Counter()
    failures = list(subject(name).run(range(examples(CASES[name])), SEED, uses))
    assert not failures, "\n\n".join(failures[:5])
    if not QUICK:
        least = Counter({use: count for use, count in USES[name].items() if use not in _unusable()})
        assert not least - uses, f"used too rarely: {least - uses}"
        outputs = {f"by_{output}".replace("-", "_") for output in (*EAGER, *LAZY)}
        assert outputs <= set(uses)

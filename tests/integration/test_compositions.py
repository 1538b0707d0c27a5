"""Options of a read, outputs and queries of engines are composed at random, and return the rows that plain Python
returns. ``python -m tests.soak compositions`` runs more cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.compositions.cases import EAGER, LAZY
from tests.compositions.run import SUBJECTS, Subject, served
from tests.effort import QUICK, examples

SEED = 1
CASES = {"delta": 1200, "delta changes": 900, "iceberg": 900}
# At least so often is each decoder and shortcut used, among a third of the cases.
USES: dict[str, Counter[str]] = {
    "delta": Counter(
        whole_file=100, row_groups=50, constant=5, page_index=10, late_columns=5, cut_group=20, stub_pages=20,
        polars_reader=3, dictionaries=20, vectors=100, packed=5, pushed=20,
    ),
    "delta changes": Counter(
        whole_file=100, row_groups=50, constant=5, page_index=10, late_columns=2, cut_group=20, stub_pages=20,
        polars_reader=3, dictionaries=10, vectors=50, windows=20, pushed=20,
    ),
    "iceberg": Counter(
        whole_file=100, row_groups=50, page_index=10, late_columns=2, cut_group=20, stub_pages=20, polars_reader=3,
        dictionaries=10, vectors=50, equality=50, packed=5, pushed=20,
    ),
}  # fmt: skip


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
        assert not USES[name] - uses, f"used too rarely: {USES[name] - uses}"
        outputs = {f"by_{output}".replace("-", "_") for output in (*EAGER, *LAZY)}
        assert outputs <= set(uses)

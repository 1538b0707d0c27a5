"""A set of names that keeps a few bytes of each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.fingerprints import Fingerprints, fingerprint, fingerprints, pairs
from tests.quota import meets, met


@meets(twice=13, other=10)
@given(st.lists(st.text(max_size=3), max_size=200), st.lists(st.text(max_size=3)))
def test_it_is_a_set(names: list[str], others: list[str]) -> None:
    met("twice", len(set(names)) < len(names))
    met("other", set(others) - set(names))
    found, expected = Fingerprints(), set[str]()
    for name in names:
        assert found.add(fingerprint(name)) == (fingerprint(name)[1] if name in expected else 0)
        expected.add(name)
    for name in (*names, *others):
        assert (fingerprint(name) in found) == (name in expected)


def test_it_grows_and_stays_small() -> None:
    found = Fingerprints()
    names = [f"{number:032x}" for number in range(30_000)]
    assert not any(found.add(fingerprint(name)) for name in names)
    assert all(found.add(fingerprint(name)) for name in names)
    assert not any(fingerprint(name + "x") in found for name in names)
    assert sum(8 * len(words) for words in found._parts) < 40 * len(names)


def test_a_name_that_is_known_tells_what_it_stands_for() -> None:
    found = Fingerprints()
    assert found.add((7, 1)) == 0
    assert found.add((7, 2)) == 1
    assert (7, 1) in found
    assert (7, 2) not in found


@meets(several=22, wide=22)
@given(st.lists(st.text()))
def test_those_of_many_names_are_those_of_each(names: list[str]) -> None:
    met("several", len(names) > 1)
    met("wide", not "".join(names).isascii())
    assert list(pairs(fingerprints(names))) == [fingerprint(name) for name in names]

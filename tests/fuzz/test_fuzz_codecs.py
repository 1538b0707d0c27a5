"""A short run of the fuzzer in every test run; long runs are started by hand or by CI."""

from __future__ import annotations

import random

import pytest

from tools.fuzz.codecs import TARGETS, Failed, fuzz_randomly, main, run_one, seeds


@pytest.mark.parametrize("name", TARGETS)
def test_codecs_raise_only_our_errors_for_damaged_inputs(name):
    seed = random.randrange(1 << 31)
    try:
        fuzz_randomly([name], seed=seed, inputs=600)
    except Failed as failure:
        pytest.fail(f"seed {seed}: {failure}")


@pytest.mark.parametrize("name", TARGETS)
def test_every_codec_accepts_at_least_one_seed(name):
    assert any(run_one(name, data) for data in seeds(name))


def test_broken_codec_is_reported_with_its_input(monkeypatch, capsys):
    def broken(data: bytes) -> None:
        raise IndexError("out of range")

    monkeypatch.setitem(TARGETS, "z85", broken)
    assert main(["--target", "z85", "--seconds", "1", "--seed", "1", "--random"]) == 1
    shown = capsys.readouterr().out
    assert "IndexError" in shown
    assert "--target z85 --input" in shown

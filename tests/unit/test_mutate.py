"""Mutation testing makes each change of a function once, and does not change text for people."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from tools.mutate.mutants import made_by, mutants, parts, watched

SOURCE = '''
LIMIT = 1


def chosen(rows: int | None, *, most: int = 2) -> bool:
    """Not this text, nor 3."""
    if rows is None and most > 1:
        raise ValueError(f"{rows + 4} is no number")
    warnings.warn("rows", stacklevel=2)
    kind = KINDS.get("few", "It is none of them.")
    pairs = zip(rows, kind, strict=True)
    return min(rows, most) == 5
'''


def test_every_mutant_is_a_different_program() -> None:
    results = []
    for number in range(len(mutants(Path("a.py"), "a.py", ast.parse(SOURCE)))):
        tree = ast.parse(SOURCE)
        mutant = mutants(Path("a.py"), "a.py", tree)[number]
        mutant.apply()
        results.append(ast.unparse(tree))

    assert len(set(results)) == len(results)
    assert ast.unparse(ast.parse(SOURCE)) not in results
    for changed in (
        "rows is not None and",
        "rows is None or",
        "most >= 1",
        "max(rows",
        "!= 5",
        "== 6",
        "most > 2",
        "'fewx'",
    ):
        assert any(changed in text for text in results), changed
    assert any("raise" not in text for text in results)
    assert all("warn('rows'" in text or "pass" in text for text in results)
    assert all("It is none of them." in text for text in results)
    assert all("strict=True" in text for text in results)
    assert all("LIMIT = 1" in text and "nor 3" in text and "most: int=2" in text for text in results)


def test_name_of_a_mutant_does_not_depend_on_its_line() -> None:
    first, second = (mutants(Path("a.py"), "a.py", ast.parse(text)) for text in (SOURCE, f"\n\n{SOURCE}"))

    assert [one.key for one in first] == [one.key for one in second]
    assert len({one.key for one in first}) == len(first)
    assert second[0].line == first[0].line + 2


def test_digest_of_a_function_depends_only_on_its_text() -> None:
    before = parts(SOURCE)
    assert list(before) == ["", "chosen"]
    assert before["chosen"][1] == range(5, 13)
    moved, changed, around = (
        parts(text) for text in (f"\n\n{SOURCE}", SOURCE.replace("== 5", "== 6"), SOURCE.replace("LIMIT", "MOST"))
    )
    assert moved["chosen"] == (before["chosen"][0], range(7, 15))
    assert moved[""] == before[""] == changed[""]
    assert changed["chosen"][0] != before["chosen"][0] == around["chosen"][0]
    assert around[""] != before[""]


def test_helper_functions_of_a_test_module_belong_to_every_test() -> None:
    source = "def made():\n    return 1\n\n\ndef test_a():\n    pass\n\n\nclass TestB:\n    def test_b(self): pass\n"
    assert list(parts(source)) == ["", "test_a", "TestB.test_b"]
    assert parts(source.replace("1", "2"))[""] != parts(source)[""]
    assert parts(source.replace("pass", "..."))[""] == parts(source)[""]


def test_values_computed_at_import_are_found_by_function() -> None:
    source = "def made(x):\n    return x\n\n\nONE = made(1)\nTWO: dict = {2: made(2)}\nTHREE = 3\nFOUR = other(made)\n"
    assert [each.lineno for each in made_by(ast.parse(source), "made")] == [5, 6]
    assert mutants(Path("a.py"), "a.py", ast.parse(SOURCE))[0].function == "chosen"


def test_lambda_is_recorded_when_it_is_called() -> None:
    source = "def made(x):\n    if x:\n        return lambda y: y + 1\n    return None\n\nadd = made(True)\n"
    reached: dict[int, bool] = {}
    module: dict[str, Any] = {"reached": reached}
    exec(compile(watched(ast.parse(source), "reached"), "a.py", "exec"), module)
    assert reached == {2: True, 3: True}
    reached.clear()
    assert module["add"](2) == 3
    assert reached == {3: True}

"""Find the mutants of a module: the places that can be changed, and the changes made there.

A mutant is one change inside one function: a comparison, an operator, a constant, a condition, a keyword or a whole
statement. Strings are changed if they are keys or names. Text for people (sentences, docstrings, annotations, raised
and logged messages) is not changed, nor are defaults and decorators, which run once at import.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
# Calls that only copy or convert their argument.
COPIES = ("bytes", "dict", "frozenset", "iter", "list", "memoryview", "set", "str", "tuple")
# Calls whose arguments are messages: their text is not mutated.
TOLD = re.compile(r"(^|\.)(warn|debug|info|warning|\w+(Error|Warning))$")
# Matches a key, a name or a unit, but no sentence or part of a sentence.
NAME = re.compile(r"[A-Za-z_][\w.:=-]*")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change. ``apply`` makes it in the syntax tree; ``key`` identifies it independently of its line.

    ``line`` is the line of the change, ``statement`` the first line of the statement around it, ``function`` its
    function.
    """

    path: Path
    function: str
    line: int
    statement: int
    key: str
    apply: Callable[[], None]


def mutants(path: Path, name: str, tree: ast.Module) -> list[Mutant]:
    """Return the mutants of a module; their keys start with ``name``."""
    results: list[Mutant] = []
    seen: Counter[str] = Counter()
    for function, qualname in _functions(tree, ""):
        for line, statement, before, after, apply in _changes(function):
            text = f"{name}::{qualname}: {before} => {after}"
            seen[text] += 1
            results.append(
                Mutant(path, qualname, line, statement, text if seen[text] == 1 else f"{text} ({seen[text]})", apply)
            )
    return results


def parts(source: str) -> dict[str, tuple[str, range]]:
    """Return the functions of a module by name, each as the digest of its text and the range of its lines.

    The empty name stands for the code around them, which in a test module includes helper functions.
    """
    tree, lines = ast.parse(source), source.splitlines()
    results: dict[str, tuple[str, range]] = {}
    all_functions = list(_functions(tree, ""))
    has_tests = any(function.name.startswith("test_") for function, _ in all_functions)
    for function, name in all_functions:
        if has_tests and not function.name.startswith("test_"):
            continue
        while name in results:  # a property and its setter
            name += "'"
        first = min(node.lineno for node in (function, *function.decorator_list))
        span = range(first, (function.end_lineno or first) + 1)
        results[name] = (_digest(lines[first - 1 : span.stop - 1]), span)
    inside = {line for _, span in results.values() for line in span}
    around = [text for line, text in enumerate(lines, 1) if line not in inside and text.strip()]
    return {"": (_digest(around), range(0)), **results}


def made_by(tree: ast.Module, function: str) -> list[ast.Assign | ast.AnnAssign]:
    """Return the assignments at the module's top level that call ``function``."""
    return [
        each
        for each in tree.body
        if isinstance(each, (ast.Assign, ast.AnnAssign)) and any(_is_call(node, function) for node in ast.walk(each))
    ]


def _is_call(node: ast.AST, function: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def watched(tree: ast.Module, name: str) -> ast.Module:
    """Return the module, changed so that each statement in a function adds its line as a key to the mapping ``name``.

    So does a called lambda, with the line of its statement, as it may have been created at import.
    """
    for function, _ in _functions(tree, ""):
        nodes = list(ast.walk(function))
        for statement in (node for node in nodes if isinstance(node, ast.stmt) and not _has_body(node)):
            for node in ast.walk(statement):
                if isinstance(node, ast.Lambda):
                    node.body = _noted(node.body, statement, name)
        for node in nodes:
            for field, body in ast.iter_fields(node):
                if isinstance(body, list) and body and isinstance(body[0], ast.stmt) and field != "decorator_list":
                    node.__setattr__(field, [part for each in body for part in (_note(each, name), each)])
    return ast.fix_missing_locations(tree)


def _has_body(statement: ast.stmt) -> bool:
    return hasattr(statement, "body") or hasattr(statement, "cases")


def _noted(value: ast.expr, statement: ast.stmt, name: str) -> ast.expr:
    place = ast.Attribute(ast.Name(name, ast.Load()), "__setitem__", ast.Load())
    note = ast.Call(place, [ast.Constant(statement.lineno), ast.Constant(value=True)], [])
    return ast.Subscript(ast.Tuple([note, value], ast.Load()), ast.Constant(1), ast.Load())


def _note(statement: ast.stmt, name: str) -> ast.stmt:
    place = ast.Subscript(ast.Name(name, ast.Load()), ast.Constant(statement.lineno), ast.Store())
    note = ast.Assign([place], ast.Constant(value=True))
    for part in ast.walk(note):
        ast.copy_location(part, statement)
    return note


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Yield each function that is not nested in another function, with its qualified name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTIONS):
            if child.name not in ("__repr__", "__str__", "_repr_html_"):
                yield child, prefix + child.name
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


Change = tuple[int, int, str, str, Callable[[], None]]


def _changes(function: ast.stmt) -> Iterator[Change]:
    """Yield the changes to code that runs when the function is called, except for text for people."""
    waiting = [(function, 0)]
    while waiting:
        node, around = waiting.pop(0)
        for child, put in _children(node):
            statement = child.lineno if isinstance(child, ast.stmt) else around
            # A raised message is not changed; the raise itself is changed as a statement.
            if not isinstance(child, ast.Raise):
                waiting.append((child, statement))
            for line, before, after, apply in _of(child, put):
                yield line, statement, before, after, apply


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None]]]:
    """Yield the nodes inside a node, each with a function that replaces it."""
    once = ("annotation", "returns", "decorator_list", "args") if isinstance(node, (*FUNCTIONS, ast.AnnAssign)) else ()
    for field, value in ast.iter_fields(node):
        if field in once:
            continue
        places = enumerate(value) if isinstance(value, list) else [(None, value)]
        is_told = field in ("args", "keywords") and _is_told(node)
        for index, child in places:
            if isinstance(child, ast.AST) and not _for_people(child) and not is_told:
                yield child, _setter(node, field) if index is None else _setter(value, index)


def _for_people(node: ast.AST) -> bool:
    return isinstance(node, (ast.JoinedStr, ast.Assert, ast.arguments)) or (
        _is_assertion(node) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    )


def _is_assertion(node: ast.AST) -> bool:
    """Return whether this argument is ``strict=True``, which asserts that iterables have the same length."""
    return (
        isinstance(node, ast.keyword)
        and node.arg == "strict"
        and isinstance(node.value, ast.Constant)
        and node.value.value is True
    )


def _is_told(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and TOLD.search(ast.unparse(node.func)) is not None


def _setter(owner: object, place: int | str) -> Callable[[ast.AST], None]:
    def put(node: ast.AST) -> None:
        if isinstance(place, int):
            owner[place] = node  # type: ignore[index]
        else:
            setattr(owner, place, node)

    return put


def _of(node: ast.AST, put: Callable[[ast.AST], None]) -> Iterator[tuple[int, str, str, Callable[[], None]]]:
    """Yield the changes to the node itself; ``put`` replaces the node."""
    for new in _replacements(node):
        ast.copy_location(new, node)
        ast.fix_missing_locations(new)
        yield getattr(node, "lineno", 0), _shown(node), _shown(new), _put(put, new)


def _put(put: Callable[[ast.AST], None], new: ast.AST) -> Callable[[], None]:
    return lambda: put(new)


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else f"{text[:60]}...{text[-35:]}"


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            ops = [*node.ops]
            ops[index] = COMPARISONS[type(operator)]()
            yield ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        for index in range(len(node.values)):
            left = [*node.values[:index], *node.values[index + 1 :]]
            yield left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _is_text(node):
        yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
        yield ast.AugAssign(node.target, OPERATORS[type(node.op)](), node.value)
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
    elif isinstance(node, (ast.If, ast.While)) and not isinstance(node.test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
        yield type(node)(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    yield from _statements(node)


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, (int, float)):
        yield ast.Constant(value + 1)
    elif isinstance(value, str) and NAME.fullmatch(value):
        yield ast.Constant(f"{value}x")


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    if isinstance(node.func, ast.Name) and node.func.id in CALLS:
        yield ast.Call(ast.Name(CALLS[node.func.id], ast.Load()), node.args, node.keywords)
    elif isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
        yield node.func.value
    elif _shown(node.func) in COPIES or _is_told(node):
        return
    elif isinstance(node.func, ast.Name) and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
        yield node.args[0]
    for index in range(len(node.keywords)):
        if not _is_assertion(node.keywords[index]):
            yield ast.Call(node.func, node.args, [*node.keywords[:index], *node.keywords[index + 1 :]])


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.Raise, ast.Break, ast.Continue, ast.Delete)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await, ast.Yield))
    ):
        yield ast.Pass()
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if isinstance(node, ast.AugAssign) or any(isinstance(one, (ast.Attribute, ast.Subscript)) for one in targets):
            yield ast.Pass()


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )

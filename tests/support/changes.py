"""Every small change that can be made to the functions of a file: see tests.mutations.

An operator is exchanged, a number is one larger, a condition is never true, or a call
is left out.
"""

import ast
import collections
from typing import NamedTuple

from tests.support import ROOT

OPERATORS = {
    "Lt": "<=",
    "LtE": "<",
    "Gt": ">=",
    "GtE": ">",
    "Eq": "!=",
    "NotEq": "==",
    "Is": "is not",
    "IsNot": "is",
    "In": "not in",
    "NotIn": "in",
    "Add": "-",
    "Sub": "+",
    "Mult": "/",
    "Div": "*",
    "FloorDiv": "*",
    "And": "or",
    "Or": "and",
}


class Change(NamedTuple):
    """`name` puts a fault into `file`: characters `start` to `end` become `new`."""

    name: str
    file: str
    line: int
    start: int
    end: int
    new: str


def changes_of(path):
    """Every change that can be made to a file's functions."""
    text = path.read_text(encoding="utf-8")
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found, file = [], path.relative_to(ROOT).as_posix()

    def place(node):
        return (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def add(node, span, new, function, kind):
        old = text.encode()[span[0] : span[1]].decode()
        name = f"{file}:{function}: {' '.join(old.split())[:60]} -> {new[:60]} ({kind})"
        found.append(Change(name, file, node.lineno, *span, new))

    def walk(node, function):
        for child in ast.iter_child_nodes(node):
            inside = function
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inside = f"{function}.{child.name}".lstrip(".")
            # What an error says is not a number.
            if isinstance(child, ast.Raise | ast.JoinedStr | ast.Assert):
                continue
            if isinstance(node, ast.FunctionDef) and child in (
                node.args,
                node.returns,
                *node.decorator_list,
            ):
                continue
            if function or inside:
                of(child, inside)
            walk(child, inside)

    def between(left, right):
        return place(left)[1], place(right)[0]

    def of(node, function):
        kind = type(node).__name__
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            new = OPERATORS[type(node.ops[0]).__name__]
            span = between(node.left, node.comparators[0])
            add(node, span, f" {new} ", function, "comparison")
        elif isinstance(node, ast.BinOp) and type(node.op).__name__ in OPERATORS:
            if any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right)):
                return
            new = OPERATORS[type(node.op).__name__]
            span = between(node.left, node.right)
            if set(text.encode()[span[0] : span[1]].decode()) <= set(" \n+-*/"):
                add(node, span, f" {new} ", function, "arithmetic")
        elif isinstance(node, ast.BoolOp):
            new = OPERATORS[type(node.op).__name__]
            span = between(*node.values[:2])
            middle = text.encode()[span[0] : span[1]].decode().split()
            if middle in (["and"], ["or"]):
                add(node, span, f" {new} ", function, "boolean")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            span = place(node)
            inner = text.encode()[slice(*place(node.operand))].decode()
            add(node, span, f"bool({inner})", function, "not")
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            new = str(not node.value if kind == "bool" else node.value + 1)
            if type(node.value) is bool:
                new = str(not node.value)
            add(node, place(node), new, function, "constant")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            add(node, place(node), "pass", function, "left out")
        elif isinstance(node, ast.If | ast.IfExp):
            add(node, place(node.test), "False", function, "condition")
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            if node.value.args and len(node.value.args) == 1:
                only = text.encode()[slice(*place(node.value.args[0]))].decode()
                add(node, place(node.value), only, function, "call left out")

    walk(ast.parse(text), "")
    # Two changes may read alike: the second says so.
    seen = collections.Counter()
    named = []
    for change in found:
        seen[change.name] += 1
        again = "" if seen[change.name] == 1 else f" #{seen[change.name]}"
        named.append(change._replace(name=change.name + again))
    return named

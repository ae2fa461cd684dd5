"""The errors of xsem that a function raises: by its own ``raise`` statements, and through the functions that it calls.

The reader knows a called method if the source shows the class of its object: `self`, a parameter, or a variable or
attribute with an annotation or a constructor as its value. A call inside of ``try`` with a handler does not count.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import griffe

from xsem import errors

__all__ = ["documented", "own", "raised"]

_NAMES: Final = frozenset(errors.__all__) - {"XsemError"}   # XsemError: any error


def raised(function: griffe.Function, levels: int = 4) -> dict[str, str]:
    """Return the names of the errors, each with the path of the function that raises or documents it.

    Parameters
    ----------
    function : griffe.Function
        A function of xsem.
    levels : int
        Number of calls to follow, one below the other.
    """
    found = dict.fromkeys(own(function), function.path)
    if levels:
        for called in _called(function):
            found = dict.fromkeys(documented(called) & _NAMES, called.path) | raised(called, levels - 1) | found
    return found


def own(function: griffe.Function) -> set[str]:
    """Return the names of the errors in the ``raise`` statements of a body.

    The name is that of the called class, or the return type of the called function.
    """
    found = set()
    for each in ast.walk(_tree(function)):
        if isinstance(each, ast.Raise) and isinstance(each.exc, ast.Call):
            made = _of(each.exc.func, function)
            name = each.exc.func.id if isinstance(each.exc.func, ast.Name) else ""
            found.add(str(made.returns) if isinstance(made, griffe.Function) else name)
    return found & _NAMES


def documented(thing: griffe.Object) -> set[str]:
    """Return the names in the section Raises of a docstring. A name of a group is a name of its own."""
    if thing.docstring is None:
        return set()
    return {word.strip() for section in thing.docstring.parse("numpy", warnings=False)
            if section.kind.value == "raises" for item in section.value
            for word in str(item.annotation).strip("()").split(",")}


def _tree(function: griffe.Function) -> ast.AST:
    return _parsed(Path(str(function.filepath)), function.lineno or 1, function.endlineno or 1)


@cache
def _parsed(path: Path, first: int, last: int) -> ast.AST:
    lines = path.read_text(encoding="utf-8").splitlines()[first - 1:last]
    return ast.parse(textwrap.dedent("".join(f"{line}\n" for line in lines)))


def _called(function: griffe.Function) -> Iterator[griffe.Function]:
    for call in _calls(_tree(function)):
        thing = _of(call.func, function)
        if isinstance(thing, griffe.Class):
            made = (_member(thing, name) for name in ("__init__", "__post_init__"))
            yield from (each for each in made if isinstance(each, griffe.Function))
        elif isinstance(thing, griffe.Function) and thing.path != function.path:
            yield thing


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of a body, outside of functions in the body and of ``try`` with a handler."""
    for below in ast.iter_child_nodes(node):
        if isinstance(below, ast.Lambda) or (isinstance(below, ast.FunctionDef) and not isinstance(node, ast.Module)):
            continue
        if isinstance(below, ast.Call):
            yield below
        if isinstance(below, ast.Try) and below.handlers:
            for part in (*below.handlers, *below.orelse, *below.finalbody):
                yield from _calls(ast.Module([part], []) if isinstance(part, ast.stmt) else part)
        else:
            yield from _calls(below)


def _of(node: ast.expr, function: griffe.Function) -> griffe.Object | None:
    """Return the class of an expression, or the function or module that it names."""
    if isinstance(node, ast.Name):
        if node.id in {"self", "cls"}:
            return function.parent
        for parameter in function.parameters:
            if parameter.name == node.id:
                return _class(parameter.annotation, function.module)
        for each in ast.walk(_tree(function)):
            match each:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=cls))) if name == node.id:
                    return _class(cls, function.module)
        return _member(function.module, node.id)
    if not isinstance(node, ast.Attribute):
        return None
    owner = _of(node.value, function)
    member = None if owner is None else _member(owner, node.attr)
    if not isinstance(member, griffe.Attribute):
        return member
    made = None if member.value is None else str(member.value).partition("(")[0]
    return _class(member.annotation or made, member.module)


def _class(annotation: object, module: griffe.Module) -> griffe.Object | None:
    name = str(annotation).removesuffix(" | None").strip("'\"")
    found = _member(module, name) if name.isidentifier() else None
    return found if isinstance(found, griffe.Class) else None


def _member(owner: griffe.Object, name: str) -> griffe.Object | None:
    places = (owner, *owner.mro()) if isinstance(owner, griffe.Class) else (owner,)
    for place in places:
        if name in place.members:
            member = place.members[name]
            try:
                return member.final_target if isinstance(member, griffe.Alias) else member
            except griffe.AliasResolutionError:   # a name of another package
                return None
    return None

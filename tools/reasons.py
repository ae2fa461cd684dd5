"""Compare the `reason` of every error in the source with docs/errors.md: ``python tools/reasons.py [--update]``."""

# Without arguments it prints the differences. ``--update`` adds the missing rows to docs/errors.md, to be described by
# hand, and removes the rows that no code raises.

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = "docs/errors.md"
TO_BE_DESCRIBED = "(to be described)"
_ROW = re.compile(r"^\| `([^`]*)` \| ([^|]*) \| (.*) \|$")
HEAD = "| Reason | Error | Meaning, and what to do |\n| --- | --- | --- |\n"


@dataclass
class Found:
    """Error classes by reason, and the places whose reason cannot be read from the source."""

    classes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unreadable: list[str] = field(default_factory=list)


def collect(root: Path = ROOT) -> Found:
    """Collect the reasons of xsem, the backends and the suite."""
    folders = [root / "xsem", *sorted((root / "backends").glob("*/xsem_*")), root / "conformance" / "xsem_conformance"]
    trees = {path: ast.parse(path.read_text(encoding="utf-8"))
             for folder in folders for path in sorted(folder.rglob("*.py"))}
    helpers = _helpers(trees.values())
    found = Found()
    for path, tree in trees.items():
        for where in _unreadable(tree):
            found.unreadable.append(f"{path.relative_to(root)}:{where}")
        for cls, slug in _raised(tree):
            found.classes[slug] |= helpers.get(cls, {cls})
    return found


def _unreadable(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(arg.arg == "reason" for arg in node.args.args):
            yield f"{node.lineno}: make the parameter reason of {node.name} keyword-only"
        elif isinstance(node, ast.Call):
            for value in _reason_of(node):
                # A variable is looked up in its function. error.reason passes on a reason of another place.
                if not (_literals(value) or isinstance(value, ast.Name | ast.Attribute | ast.Subscript)):
                    yield f"{value.lineno}: reason={ast.unparse(value)} is not a literal"


def _raised(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the class (or helper) and the reason of every call. A variable stands for all values that it is set to."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for scope in (tree, *functions):
        for call in [node for node in ast.walk(scope) if isinstance(node, ast.Call)]:
            for value in _reason_of(call):
                slugs = _assigned(scope, value.id) if isinstance(value, ast.Name) else _literals(value)
                for slug in slugs:
                    yield _name(call.func), slug
    for cls in [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]:
        for node in ast.walk(cls):
            if isinstance(node, ast.Call) and _name(node.func) == "setdefault" and len(node.args) == 2:
                key, value = node.args
                if _literals(key) == ["reason"]:
                    for slug in _literals(value):
                        yield cls.name, slug


def _helpers(trees: Iterable[ast.Module]) -> dict[str, set[str]]:
    """Return the functions with a parameter `reason`, and the classes that they raise with it."""
    helpers: dict[str, set[str]] = {}
    for tree in trees:
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and any(arg.arg == "reason" for arg in function.args.kwonlyargs):
                classes = {_name(call.func) for call in ast.walk(function) if isinstance(call, ast.Call)
                           and any(isinstance(value, ast.Name) and value.id == "reason" for value in _reason_of(call))}
                if function.name != "__init__":
                    helpers[function.name] = classes
    # A helper may pass its reason to another helper.
    for name, classes in helpers.items():
        helpers[name] = {each for cls in classes for each in helpers.get(cls, {cls})}
    return helpers


def _reason_of(call: ast.Call) -> list[ast.expr]:
    return [keyword.value for keyword in call.keywords if keyword.arg == "reason"]


def _literals(value: ast.expr) -> list[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return [value.value]
    if isinstance(value, ast.IfExp) and (left := _literals(value.body)) and (right := _literals(value.orelse)):
        return left + right
    return []


def _assigned(scope: ast.AST, name: str) -> list[str]:
    slugs: list[str] = []
    if isinstance(scope, ast.Module):
        return slugs
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            pairs.append((node.targets[0], node.value))
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple | ast.List):
            pairs += [(node.target, each) for each in node.iter.elts]
    for target, value in pairs:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            parts = list(zip(target.elts, value.elts, strict=False))
        else:
            parts = [(target, value)]
        slugs += [slug for left, right in parts if isinstance(left, ast.Name) and left.id == name
                  for slug in _literals(right) if slug]
    return slugs


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def written(root: Path = ROOT) -> dict[str, tuple[str, str]]:
    """Return the rows of the page: class and meaning by reason."""
    text = (root / PAGE).read_text(encoding="utf-8") if (root / PAGE).exists() else ""
    return {match[1]: (match[2], match[3]) for line in text.splitlines() if (match := _ROW.match(line))}


def problems(root: Path = ROOT) -> list[str]:
    """Return the errors of the page and of the code that it describes; empty if both agree."""
    found, rows = collect(root), written(root)
    wrong = list(found.unreadable)
    wrong += [f"{slug!r} of {_classes(found, slug)} is not a snake_case slug" for slug in sorted(found.classes)
              if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", slug)]
    wrong += [f"{PAGE} lacks {slug} ({_classes(found, slug)})" for slug in sorted(set(found.classes) - set(rows))]
    wrong += [f"{PAGE} has {slug}, which nothing raises" for slug in sorted(set(rows) - set(found.classes))]
    for slug in sorted(set(rows) & set(found.classes)):
        said, meaning = rows[slug]
        if said != _classes(found, slug):
            wrong.append(f"{PAGE} says {slug} is of {said}; it is of {_classes(found, slug)}")
        if not meaning.strip() or TO_BE_DESCRIBED in meaning:
            wrong.append(f"{PAGE} does not describe {slug}")
    return wrong


def _classes(found: Found, slug: str) -> str:
    return ", ".join(sorted(found.classes[slug]))


def update(root: Path = ROOT) -> None:
    """Rewrite the table and keep its meanings and the text around it."""
    found, rows = collect(root), written(root)
    text = (root / PAGE).read_text(encoding="utf-8")
    before, _, rest = text.partition(HEAD)
    after = "".join(line for line in rest.splitlines(keepends=True) if not line.startswith("| "))
    table = "".join(f"| `{slug}` | {_classes(found, slug)} | {rows.get(slug, ('', TO_BE_DESCRIBED))[1]} |\n"
                    for slug in sorted(found.classes))
    (root / PAGE).write_text(before + HEAD + table + after, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        update()
    left = problems()
    print("\n".join(left) or f"{PAGE} is complete")
    sys.exit(1 if left else 0)

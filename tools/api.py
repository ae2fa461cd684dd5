"""Print every public name and signature: ``python tools/api.py > tests/api.txt``."""

# The tool reads the source and does not import it, so that the text is the same on every Python and platform.

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
BESIDES = ("ipc", "spi", "types", "errors")   # public modules in addition to the package itself
# Magic methods that @dataclass or Python implies. The others are listed.
_IMPLIED = frozenset({"__slots__", "__post_init__", "__del__", "__repr__", "__str__", "__reduce__"})
# Classes that only xsem constructs, so that their __init__ is not listed.
MADE_BY_XSEM = (
    "xsem.facade.resource.Releasable", "xsem.facade.resource.Resource", "xsem.facade.image.MipmapLevel",
    "xsem.ring.frames.Frame", "xsem.ring.producer.FrameRing", "xsem.ring.consumer.FrameReader",
)


def lines(root: Path = ROOT) -> Iterator[str]:
    """Yield the listing: one line for each name. Members are indented below their class."""
    public = names(root)
    listed = {thing.path for members in public.values() for thing in members.values()}
    told: dict[str, str] = {}
    for path, members in public.items():
        yield f"# {path}"
        for name in sorted(members):
            first = told.setdefault(members[name].path, path)
            if first != path:
                yield f"{name}: as in {first}"
            else:
                yield from _described(name, members[name], listed)
        yield ""


def names(root: Path = ROOT) -> dict[str, dict[str, griffe.Object]]:
    """Return the public names of each public module, with their definitions."""
    loader = griffe.GriffeLoader(search_paths=[root], allow_inspection=False)
    # Otherwise a folder "xsem" in the working directory takes precedence over `root`.
    package = loader.load("xsem", try_relative_path=False)
    loader.resolve_aliases(external=False)
    modules = {"xsem": package} | {f"xsem.{name}": package[name] for name in BESIDES if name in package.members}
    return {
        path: {str(name): _resolved(module[str(name)]) for name in module.exports or []}
        for path, module in modules.items()
    }


def callables(root: Path = ROOT) -> dict[str, griffe.Function]:
    """Return every public function and method by its name. A constructor is ``CLASS.__init__``."""
    public = names(root)
    listed = {thing.path for members in public.values() for thing in members.values()}
    found: dict[str, griffe.Function] = {}
    seen: set[str] = set()   # a method of a base occurs once
    for path, members in public.items():
        for name, thing in members.items():
            mine = {f"{path}.{name}": thing}
            if isinstance(thing, griffe.Class):
                mine |= {f"{path}.{name}.{key}": each for key, each in _members(thing, listed).items()}
            for full, each in mine.items():
                if isinstance(each, griffe.Function) and each.path not in seen:
                    seen.add(each.path)
                    found[full] = each
    return found


def _resolved(thing: griffe.Object | griffe.Alias) -> griffe.Object:
    return thing.final_target if isinstance(thing, griffe.Alias) else thing


def _described(name: str, thing: griffe.Object, listed: set[str]) -> Iterator[str]:
    if isinstance(thing, griffe.Class):
        decorators = "".join(f"@{each.value} " for each in thing.decorators)
        yield f"{decorators}class {name}({', '.join(str(base) for base in thing.bases)})"
        members = _members(thing, listed)
        for member in sorted(members):
            for line in _described(member, members[member], listed):
                yield f"    {line}"
    elif isinstance(thing, griffe.Function):
        marks = "".join(f"@{each.value} " for each in thing.decorators)
        keyword = "async def" if "async" in thing.labels else "def"
        for each in thing.overloads or [thing]:
            yield f"{'@overload ' if thing.overloads else marks}{keyword} {each.signature()}"
    elif isinstance(thing, griffe.Attribute):
        yield _attribute(name, thing)
    else:
        yield f"{name}: {thing.kind.value} {thing.path}"


def _attribute(name: str, thing: griffe.Attribute) -> str:
    marks = "".join(f"@{label} " for label in ("abstractmethod", "property", "cached") if label in thing.labels)
    kind, value = thing.annotation, thing.value
    owner = thing.parent
    if isinstance(owner, griffe.Class) and not any(str(base).endswith("Enum") for base in owner.bases):
        # Without an annotation, use that of the parameter of __init__. A dataclass's defaults are in its __init__.
        made = owner.members.get("__init__")
        if kind is None and isinstance(made, griffe.Function):
            kind = {each.name: each.annotation for each in made.parameters}.get(str(value))
        value = None
    return f"{marks}{name}" + ("" if kind is None else f": {kind}") + ("" if value is None else f" = {value}")


def _members(cls: griffe.Class, listed: set[str]) -> dict[str, griffe.Object]:
    """Return the public members of a class, and those of its bases that are not listed."""
    members: dict[str, griffe.Object | griffe.Alias] = {}
    for base in reversed(cls.mro()):
        if base.path.startswith("xsem.") and base.path not in listed:
            members |= base.members
    members |= cls.members
    made_by_xsem = any(each.path in MADE_BY_XSEM for each in (cls, *cls.mro()))
    return {
        name: _resolved(member) for name, member in members.items()
        if (not name.startswith("_") or (name.startswith("__") and name.endswith("__") and name not in _IMPLIED))
        and not (made_by_xsem and name == "__init__")
    }


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()).rstrip() + "\n")

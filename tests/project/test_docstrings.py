"""The docstring of every public callable agrees with its signature and with the errors that a call raises.

support/raised_errors.py finds the errors.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import api
import griffe
import pytest
from support import raised_errors

from xsem import errors

# Their meaning is Python's, the same for every class.
PROTOCOLS = {"__enter__", "__exit__"}
NEVER = {
    ("xsem.MipmappedArray.level", "UnsupportedError"): "the device made the array, so it has images",
    ("xsem.spi.level_layout", "BadArgumentError"): "the table of formats has known dtypes",
    ("xsem.Memory.export", "BadHandleError"): "the driver's handle is open",
    ("xsem.Semaphore.export", "BadHandleError"): "the driver's handle is open",
    ("xsem.ipc.Pipe.close", "ReleasedError"): "the handles of its messages are open",
}
"""Errors of called functions that a callable never raises, each with the reason."""
CALLABLES = api.callables()

FIRST_CLASSES = ("Buffer", "CommandList", "Device", "Event", "FrameReader", "FrameRing", "Memory", "Semaphore")
NOT_ON_HOST = {
    "xsem.CommandList.as_current", "xsem.CommandList.record", "xsem.Device.command_list",
    "xsem.Device.companion_exporter", "xsem.Device.share", "xsem.Memory.map_mipmapped_array", "xsem.Semaphore.signal",
    "xsem.Semaphore.wait",
}
"""Methods that `host` does not have. Their examples are shown, and do not run."""
WITHOUT_EXAMPLE = {
    "xsem.Device.nvscisync_attributes", "xsem.Semaphore.mark_reset",   # of one vendor
    "xsem.FrameReader.close", "xsem.FrameRing.close",   # the end of the `with` block of each example
}


def findings(name: str, function: griffe.Function) -> Iterator[str]:
    """Yield what the docstring of a public callable lacks or has too much."""
    if function.name == "__init__":
        yield from _constructor(name, function)
        return
    if function.docstring is None:
        if function.name not in PROTOCOLS:
            yield f"{name} has no docstring"
        return
    sections = _sections(function)
    # The class describes a class method that constructs it, as it describes the constructor.
    owner = function.parent if "classmethod" in function.labels and str(function.returns) == "Self" else None
    of_class = {} if owner is None else _sections(owner)
    described = [each.lstrip("*") for each in sections.get("parameters", [])]
    yield from _differences(name, described, [each for each in _parameters(function) if each in described
                                              or each not in of_class.get("attributes", [])])
    returns = owner is None and str(function.returns) not in {"None", "NoReturn"}
    if returns and not sections.keys() & {"returns", "yields"}:
        yield f"{name} returns {function.returns}, and its docstring has no Returns"
    if not returns and owner is None and sections.keys() & {"returns", "yields"}:
        yield f"{name} returns None, and its docstring has Returns"
    named = raised_errors.documented(function) | (set() if owner is None else raised_errors.documented(owner))
    for error in sorted(named):
        if not hasattr(errors, error) and not hasattr(builtins, error) and error != "ImportFailure":
            yield f"{name}: Raises names {error}, which is not an error"
    named |= _of_class(function)
    for error, source in sorted(raised_errors.raised(function).items()):
        if error not in _with_bases(named) and (name, error) not in NEVER:
            through = "" if source == function.path else f" through {source}"
            yield f"{name} raises {error}{through}, and its Raises does not name it"


def _of_class(function: griffe.Function) -> set[str]:
    """Return the errors that the docstring of a class, or of a base class, names for all methods."""
    owner = function.parent
    if not isinstance(owner, griffe.Class):
        return set()
    return {error for each in (owner, *owner.mro()) if isinstance(each, griffe.Class)
            for error in raised_errors.documented(each)}


def _constructor(name: str, function: griffe.Function) -> Iterator[str]:
    """Check the docstring of the class: it describes the parameters of the constructor."""
    owner = function.parent
    assert isinstance(owner, griffe.Class)
    described = {"fields"}   # of an error: `XsemError` describes them
    for each in (owner, *owner.mro()):
        if isinstance(each, griffe.Class) and each.docstring is not None:
            sections = _sections(each)
            described |= {word.lstrip("*") for key in ("parameters", "attributes") for word in sections.get(key, [])}
    described |= {"message"} if any(base.name == "XsemError" for base in owner.mro()) else set()
    for parameter in _parameters(function):
        if parameter not in described:
            yield f"{name}: the docstring of the class does not describe {parameter}"


def _differences(name: str, described: list[str], parameters: list[str]) -> Iterator[str]:
    for parameter in parameters:
        if parameter not in described:
            yield f"{name}: Parameters does not describe {parameter}"
    for word in described:
        if word not in parameters:
            yield f"{name}: Parameters describes {word}, which is not a parameter"


def _parameters(function: griffe.Function) -> list[str]:
    return [each.name for each in function.parameters if each.name not in {"self", "cls"}]


def _sections(thing: griffe.Object) -> dict[str, list[str]]:
    """Return the names in each section of a docstring. A name of a group is a name of its own."""
    assert thing.docstring is not None
    found: dict[str, list[str]] = {}
    for section in thing.docstring.parse("numpy", warnings=False):
        if section.kind.value in {"parameters", "attributes"}:
            items = [word.strip() for item in section.value for word in item.name.split(",")]
        else:
            items = []
        found[section.kind.value] = items
    return found


def _with_bases(documented: set[str]) -> set[str]:
    """Return the names and those of the classes below them."""
    classes = {name: getattr(errors, name) for name in errors.__all__}
    return documented | {name for name, error in classes.items()
                         if any(base.__name__ in documented for base in error.__mro__)}


@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_docstring_agrees_with_the_signature(name: str) -> None:
    assert list(findings(name, CALLABLES[name])) == []


def calls_of_a_beginner() -> list[str]:
    """Return the functions of xsem and the methods of its first classes, with those that send and receive."""
    return sorted({name for name in CALLABLES if re.fullmatch(
        rf"xsem\.(({'|'.join(FIRST_CLASSES)})\.)?[a-z]\w*|xsem\.ipc\.(send|receive|offer|claim)", name)
    } - WITHOUT_EXAMPLE)


@pytest.mark.parametrize("name", calls_of_a_beginner())
def test_call_of_a_beginner_has_an_example(name: str) -> None:
    # tests/project/test_docs.py runs the lines with a prompt.
    docstring = CALLABLES[name].docstring
    text = "" if docstring is None else docstring.value.partition("Examples\n--------\n")[2]
    assert ("::\n\n    " if name in NOT_ON_HOST else ">>> ") in text
    assert "SKIP" not in text


def test_errors_that_are_never_raised_belong_to_called_functions() -> None:
    assert [(name, error) for name, error in NEVER if error not in raised_errors.raised(CALLABLES[name])] == []


def test_each_defect_of_a_docstring_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('''
class Thing:
    """A thing.

    Attributes
    ----------
    size : int
        Its size.

    Raises
    ------
    ReleasedError
        Each method can raise it.
    """

    def __init__(self, size: int, colour: str) -> None: ...

    def act(self, first: int, second: int) -> int:
        """Act.

        Parameters
        ----------
        first, third : int
            Numbers.

        Raises
        ------
        NoSuchError
            Never.
        """
        if first:
            raise WouldBlockError("no")
        if second:
            raise ReleasedError("no")
        raise BadArgumentError("no")

    def rest(self) -> None:
        """Rest.

        Returns
        -------
        None
            Nothing.

        Raises
        ------
        BusyError
            ``busy``: a base class of the raised error.
        """
        raise WouldBlockError("no")

    def silent(self) -> None: ...

    @classmethod
    def red(cls, size: int, shade: int) -> Self:
        """Make a red thing."""
        raise BusyError("no")


class Below(Thing):
    """A thing below."""

    def below(self, released: bool) -> None:
        """Act.

        Parameters
        ----------
        released : bool
            Whether it is released.
        """
        if released:
            raise ReleasedError("no")
        raise ForkedError("no")
''')
    module = griffe.GriffeLoader(search_paths=[tmp_path]).load("module", try_relative_path=False)
    thing = module["Thing"]
    functions = [thing["__init__"], thing["act"], thing["rest"], thing["silent"], thing["red"],
                 module["Below"]["below"]]
    found = {each.name: list(findings(each.name, each)) for each in functions}
    assert found == {
        "__init__": ["__init__: the docstring of the class does not describe colour"],
        "act": [
            "act: Parameters does not describe second",
            "act: Parameters describes third, which is not a parameter",
            "act returns int, and its docstring has no Returns",
            "act: Raises names NoSuchError, which is not an error",
            "act raises BadArgumentError, and its Raises does not name it",
            "act raises WouldBlockError, and its Raises does not name it",
        ],
        "rest": ["rest returns None, and its docstring has Returns"],
        "silent": ["silent has no docstring"],
        "below": ["below raises ForkedError, and its Raises does not name it"],
        "red": [
            "red: Parameters does not describe shade",
            "red raises BusyError, and its Raises does not name it",
        ],
    }


def test_errors_of_called_functions_are_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('''
def made(text: str) -> DriverError: ...

class Part:
    def check(self) -> None:
        raise ReleasedError("no")

    def stop(self) -> None:
        self.check()

    def told(self) -> None:
        """Act.

        Raises
        ------
        BusyError, XsemError
            Never.
        """

class Thing:
    part: Part | None

    def __init__(self) -> None:
        self.other = Part()

    def _check(self) -> None:
        self.part.check()

    def by_annotation(self) -> None:
        self.part.check()

    def by_value(self) -> None:
        self.other.check()

    def by_variable(self) -> None:
        part = Part()
        part.check()

    def by_parameter(self, part: Part) -> None:
        part.check()

    def by_docstring(self) -> None:
        self.part.told()

    def two_levels(self) -> None:
        self._check()

    def three_levels(self) -> None:
        self.two_levels()

    def four_levels(self) -> None:
        self.three_levels()

    def five_levels(self) -> None:
        self.four_levels()

    def by_result(self) -> None:
        raise made("no")

    def handled(self) -> None:
        try:
            self._check()
        except ReleasedError:
            self.by_docstring()

    def unknown(self, part: object) -> None:
        part.check()
        lambda: self._check()
''')
    module = griffe.visit("module", path, path.read_text())
    found = {each.name: set(raised_errors.raised(each)) for each in module["Thing"].functions.values()}
    released = {"ReleasedError"}
    assert found == {
        "__init__": set(), "_check": released, "by_annotation": released, "by_value": released,
        "by_variable": released, "by_parameter": released, "by_docstring": {"BusyError"}, "two_levels": released,
        "three_levels": released, "four_levels": released, "five_levels": set(),
        "by_result": {"DriverError"}, "handled": {"BusyError"}, "unknown": set(),
    }

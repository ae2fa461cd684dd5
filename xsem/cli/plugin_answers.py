"""The answers of all installed plugins. Each plugin is imported and asked in its own process (`questions`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from xsem.cli.questions import Answer, ask
from xsem.plugins import Problem, registry

__all__ = ["Answers", "BackendAnswer", "ask_plugins", "of_plugin"]


@dataclass(frozen=True)
class BackendAnswer:
    """The answer of one backend, as in `questions.Answer`, with the facts of `xsem.backends`."""

    distribution: str
    spi_version: int
    parts: list[Any]
    failure: str | None


@dataclass(frozen=True)
class Answers:
    """The answers of the backends by name, and the plugins that cannot be used."""

    backends: dict[str, BackendAnswer]
    problems: list[Problem]


def ask_plugins(question: str, patience_s: float) -> Answers:
    """Ask all plugins at the same time: call ``answer(plugin)`` of the module `question` of xsem.cli."""
    found = Answers({}, [])
    plugins = registry().plugins
    for plugin, answer in ask(question, plugins, patience_s).items():
        if not answer.parts:
            found.problems.append(Problem(plugin, plugins[plugin], None, f"its import {answer.failure}"))
            continue
        found.problems.extend(Problem(**each) for each in answer.parts[0]["problems"])
        for name, each in _of_backends(answer).items():
            if name in found.backends:   # each process knows one plugin only
                found.problems.append(Problem(
                    name, each.distribution, each.spi_version,
                    f"{found.backends[name].distribution} has registered a backend of this name already"))
            else:
                found.backends[name] = each
    return found


def _of_backends(answer: Answer) -> dict[str, BackendAnswer]:
    """Divide the answer of a plugin. A backend that is asked after a failure has no answer."""
    first, *rest = answer.parts
    found, failure = {}, None
    for name, distribution, spi_version in first["backends"]:
        parts = [part for of, part in rest if of == name]
        if parts[-1:] == [None]:
            found[name] = BackendAnswer(distribution, spi_version, parts[:-1], None)
        else:
            found[name] = BackendAnswer(distribution, spi_version, parts, failure or answer.failure)
            failure = failure or f"was not called, because {name} of the same plugin {answer.failure}"
    return found


def of_plugin(plugin: str, of_backend: Callable[[str], Iterator[Any]]) -> Iterator[Any]:
    """Import a plugin and yield its backends and problems, then the parts of each backend, with None as the last."""
    found = registry()
    found.load(plugin)
    backends = dict(found.backends)   # a backend may load other plugins
    yield {"backends": [(name, each.distribution, each.backend.spi_version) for name, each in backends.items()],
           "problems": [asdict(each) for each in found.problems]}
    for name in backends:
        for part in of_backend(name):
            yield name, part
        yield name, None

"""The common parts of all HTML pages. A page is one file in light and dark colours, and needs no script."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any

from xsem.cli.text import printable_lines

__all__ = ["render", "shown"]


def render(template: str, **values: Any) -> str:
    """Return the page of a template."""
    # The Content-Security-Policy of the page allows only its own style and script, by their hashes.
    import jinja2

    def load(name: str) -> str:
        return resources.files("xsem_conformance.report").joinpath("templates", name).read_text(encoding="utf-8")

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True, loader=jinja2.FunctionLoader(load))
    environment.filters["breakable"] = _breakable
    style, script = load("page.css"), load("filter.js")
    policy = f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}"
    return environment.get_template(template).render(style=style, script=script, policy=policy, **values)


def _breakable(name: str) -> Any:
    """Return the name of a handle type as HTML with a possible line break after each underscore."""
    import markupsafe

    return markupsafe.Markup("_<wbr>").join(name.split("_"))


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def shown(value: Any) -> Any:
    """Make all texts printable: an HTML escape does not change control characters and bidirectional overrides."""
    if isinstance(value, str):
        return printable_lines(value)
    if isinstance(value, dict):
        return {shown(key): shown(each) for key, each in value.items()}
    return [shown(each) for each in value] if isinstance(value, list) else value

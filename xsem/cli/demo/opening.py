"""Opens the devices of the demo in processes of their own before it starts, so that a hang or a crash has a name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import xsem
from xsem.cli.demo.plan import Plan
from xsem.cli.questions import ask
from xsem.errors import BackendUnavailableError
from xsem.plugins import registry

__all__ = ["answer", "check"]


def check(plan: Plan) -> None:
    """Check that neither device hangs or crashes when it is opened. The demo itself reports other errors."""
    for name, told in ask("demo.opening", dict.fromkeys([plan.device, plan.exporter]), plan.timeout_s).items():
        if told.failure is not None:
            backend = name.partition(":")[0]
            doing = "the opening" if told.parts else f"the import of the plugin of {backend!r}"
            raise BackendUnavailableError(f"{name} cannot be opened: {doing} {told.failure}", reason="plugin_failed",
                                          backend=backend)


def answer(device: str) -> Iterator[str]:
    """Import the plugin of a device, then open the device."""
    with contextlib.suppress(Exception):
        registry().get(device.partition(":")[0])
    yield "imported"
    with contextlib.suppress(Exception):
        xsem.open_device(device).release()
    yield "opened"

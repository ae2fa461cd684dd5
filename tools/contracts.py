"""Check the imports between packages and modules: ``python tools/contracts.py [root of the tree]``."""

# The contracts are import-linter's, which refuses a configuration that names a missing package. So this tool writes the
# configuration for the packages of the tree, and a new backend is under contract from its first commit.

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import tomllib
from pathlib import Path

ALLOWED_IN_BACKENDS = ("xsem.spi", "xsem.portable", "xsem.portable.*", "xsem.types", "xsem.errors")
"""The modules of xsem that a backend may import. Only direct imports count, because xsem.types imports others."""

# Layers from top to bottom. A module imports only from lines below its own, and from modules beside a colon. Modules
# beside a bar import nothing from each other. A name in parentheses may be absent. Every module and every folder has a
# place, so a new one must be added.
LAYERS = {
    "xsem": """
        (__main__)
        (cli)
        ring
        (ipc) | facade
        runtime | plugins
        spi
        portable
        types
        data : errors
    """,
    "xsem.cli.trace": """
        recording
        command
        page
        tables | merged
        summary
        chain
        matching | reading
        files | model
    """,
    "xsem.spi": """
        registration
        backend
        device | suite_hooks
        borrowed | image_copies
        queue
        semaphores | memory
        imports | callers | append_path | libraries | process_end
        tokens
    """,
    "xsem.portable": """
        opening | memory
        linux_timeline | windows_timeline
        holders | timeline
        byte_locks
        files
        semaphore_base
        linux | windows
    """,
    "xsem.data": """
        semaphore_desc | memory_desc | images
        memory_chunks
        descriptor_fields
        pickling | drm
        transfers
        signallers
        peers
        file_descriptors | streams | running_system
        handles | uuids | layout | locks
        params | windows
        info
        handle_types | image_formats
    """,
    "xsem.data.windows": """
        processes
        handles
        codes
    """,
    "xsem.runtime": """
        host_copies
        pending_server
        trace_file
        diagnostics | handle_import | device_identity
        queues
        semaphore_state | mappings | portable_timelines | portable_memories
        device_state
        bridge
        wrapper_lifetime
        lifetime | callbacks
        release_gate
        quick | locks
        compiled
        threads | forks | subinterpreters | timeouts | tracing
    """,
    "xsem.runtime.queues": """
        queue_table
        queue
        prepared_cache | replay | bridged_append
        prepared_append
        progress
        operations
        semaphore_changes | room
    """,
    "xsem.runtime.diagnostics": """
        watchdog | host_waits
        pending_operations
        pending_signals | timeout_error
    """,
    "xsem.facade": """
        discovery | negotiation
        device | trace
        command_list
        arguments | image_copies
        sharing
        recording | memory | event
        foreign_arrays
        semaphore | image | buffer
        resource | dmabuf_images
        dlpack | current_stream | awaiting
    """,
    "xsem.ring": """
        producer
        consumer
        control | ends
        frames
        waiting | message | pictures
        protocol
    """,
    "xsem.ipc": """
        asynchronous | packing | ticket_exchange | transfers
        offers
        ticket_sockets | windows
        sockets | socket_receivers | ticket_verdicts | ticket_files
        tickets
        channels | message | received_handles
        wire
    """,
    "xsem.ipc.windows": """
        listener | ticket_pipes
        instances
        connections | asynchronous
        pipe
        incoming | outgoing
        transit | peers | names | loop_waits
        calls
        deadlines
    """,
}

# The one import upwards, for annotations only: a resource names its device.
EXCEPTION = "xsem.facade.resource -> xsem.facade.device"


def packages(root: Path) -> dict[str, Path]:
    """Return the folders of the packages in the wheel by name, as pyproject.toml lists them."""
    with (root / "pyproject.toml").open("rb") as file:
        listed = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return {Path(each).name: root / each for each in listed}


def backends(root: Path) -> list[str]:
    """Return the names of the packages under ``backends/``."""
    return [name for name, path in packages(root).items() if path.is_relative_to(root / "backends")]


def between_packages(root: Path) -> str:
    """Return the contracts between packages: layers, and the imports of backends and of the suite."""
    suite = "xsem_conformance" if "xsem_conformance" in packages(root) else None
    text = _head(root)
    text += _contract("layers", "Layers", "layers",
                      layers=[*([suite] if suite else []), " | ".join(backends(root)), "xsem"])
    text += _contract(
        "backends", "A backend imports only xsem.spi, xsem.portable, xsem.types and xsem.errors", "forbidden",
        source_modules=backends(root), forbidden_modules=["xsem"], allow_indirect_imports=True,
        ignore_imports=[f"{name}{below} -> {allowed}" for name in backends(root) for below in ("", ".**")
                        for allowed in ALLOWED_IN_BACKENDS],
        unmatched_ignore_imports_alerting="none",
    )
    text += _contract("circles", "No circle of imports in a backend or in the suite", "acyclic_siblings",
                      ancestors=[*backends(root), *([suite] if suite else [])])
    if suite:
        text += _contract("suite", "The conformance suite imports no backend", "forbidden", source_modules=[suite],
                          forbidden_modules=backends(root))
    return text


def inside_xsem(root: Path) -> str:
    """Return the contracts inside xsem. They cover imports for annotations, too."""
    top = {"__init__", "__main__", "cli"}
    modules = sorted(f"xsem.{path.stem}" for path in (root / "xsem").iterdir()
                     if path.stem not in top and (path.suffix == ".py" or (path / "__init__.py").exists()))
    text = _head(root)
    for room, layers in LAYERS.items():
        text += _contract(room, f"Layers inside {room}", "layers", containers=[room],
                          layers=[line.strip() for line in layers.strip().splitlines()], exhaustive=True,
                          **({"ignore_imports": [EXCEPTION]} if room == "xsem.facade" else {}))
    # Errors use handle types and device information, which names image formats. The other modules raise errors.
    below = ("handle_types", "image_formats", "info")
    text += _contract("errors", "Errors import only handle types, image formats and info", "forbidden",
                      source_modules=["xsem.errors"],
                      forbidden_modules=[f"xsem.data.{path.stem}" for path in sorted((root / "xsem/data").iterdir())
                                         if path.stem not in ("__init__", "__pycache__", *below)])
    text += _contract("bottom", "Handle types, image formats and info do not import errors", "forbidden",
                      source_modules=[f"xsem.data.{each}" for each in below], forbidden_modules=["xsem.errors"])
    return text + _contract(
        "whole", "No module imports the package as a whole, except the command line", "forbidden",
        source_modules=modules, forbidden_modules=["xsem"], as_packages=False, allow_indirect_imports=True)


def _head(root: Path) -> str:
    roots = "".join(f"\n    {name}" for name in packages(root))
    return f"[importlinter]\nroot_packages ={roots}\nexclude_type_checking_imports = False\n"


def _contract(name: str, title: str, kind: str, **options: object) -> str:
    text = f"\n[importlinter:contract:{name}]\nname = {title}\ntype = {kind}\n"
    for key, value in options.items():
        lines = [str(each) for each in value] if isinstance(value, list) else None
        text += f"{key} =" + ("".join(f"\n    {line}" for line in lines) if lines else f" {value}") + "\n"
    return text


def check(root: Path) -> bool:
    """Print the report. Return True if every contract is kept."""
    # Import the packages of this tree, not those of an editable installation of another tree.
    sys.path[:0] = list(dict.fromkeys(str(path.parent) for path in packages(root).values()))
    from importlinter.cli import lint_imports

    os.environ["COLUMNS"] = "200"   # keeps each import on one line
    kept = 0
    for text in (between_packages(root), inside_xsem(root)):
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "contracts.ini"
            config.write_text(text, encoding="utf-8")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                code = lint_imports(config_filename=str(config), no_cache=True)
        if code != 0:
            print(printed.getvalue())
            return False
        kept += text.count("[importlinter:contract:")
    print(f"{kept} contracts kept")
    return True


if __name__ == "__main__":
    here = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    os.chdir(here)
    sys.exit(0 if check(here) else 1)

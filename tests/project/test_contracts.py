"""The import contracts: a copy of the tree breaks each contract once, and the checker must report it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import contracts
import pytest
from support.paths import ROOT

BACKENDS = contracts.backends(ROOT)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copy the packages and the files that the checker reads."""
    for path in contracts.packages(ROOT).values():
        shutil.copytree(path, tmp_path / path.relative_to(ROOT), ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def add_package(root: Path, path: str, text: str) -> None:
    """Write a package of one module, and name it in pyproject.toml."""
    (root / path).mkdir(parents=True)
    (root / path / "__init__.py").write_text(text)
    pyproject = root / "pyproject.toml"
    before = pyproject.read_text()
    after = before.replace('packages = [\n    "xsem", ', f'packages = [\n    "xsem", "{path}", ')
    assert after != before
    pyproject.write_text(after)


def check(root: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "tools/contracts.py"], cwd=root, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=50, check=False,
                          env={**os.environ, "COLUMNS": "200"})   # the tool wraps long names
    return done.returncode, done.stdout


def test_every_contract_is_kept(copy: Path) -> None:
    code, said = check(copy)
    assert code == 0, said
    assert said == f"{20 if 'xsem_conformance' in contracts.packages(ROOT) else 19} contracts kept\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "planted", "reported"),
    [
        ("xsem/facade/device.py", "import xsem_host", "xsem.facade.device -> xsem_host"),
        ("xsem/__init__.py", "import xsem_host", "xsem -> xsem_host"),
        ("xsem/facade/device.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import xsem_host",
         "xsem.facade.device -> xsem_host"),
        ("xsem/errors.py", "import xsem.types", "xsem.errors -> xsem.types"),
        ("xsem/types.py", "import xsem.spi", "xsem.types -> xsem.spi"),
        ("xsem/spi/device.py", "import xsem.plugins", "xsem.spi.device -> xsem.plugins"),
        ("xsem/spi/tokens.py", "import xsem.spi.device", "xsem.spi.tokens -> xsem.spi.device"),
        ("xsem/plugins.py", "def late():\n    import xsem.facade.device", "xsem.plugins -> xsem.facade.device"),
        ("xsem/facade/device.py", "import xsem.facade.discovery", "xsem.facade.device -> xsem.facade.discovery"),
        ("xsem/facade/device.py", "import xsem", "xsem.facade.device -> xsem "),
        ("xsem/facade/device.py", "from xsem import Device", "xsem.facade.device -> xsem "),
        ("xsem/errors.py", "import xsem.data.handles", "xsem.errors -> xsem.data.handles"),
        ("xsem/errors.py", "import xsem.data.windows.codes", "xsem.errors -> xsem.data.windows.codes"),
        ("xsem/data/info.py", "import xsem.errors", "xsem.data.info -> xsem.errors"),
        ("xsem/data/handles.py", "import xsem.data.memory_desc", "xsem.data.handles -> xsem.data.memory_desc"),
        ("xsem/cli/trace/model.py", "import xsem.cli.trace.page", "xsem.cli.trace.model -> xsem.cli.trace.page"),
        ("xsem/runtime/lifetime.py", "import xsem.facade.resource", "xsem.runtime.lifetime -> xsem.facade.resource"),
        ("xsem/runtime/queues/progress.py", "import xsem.runtime.queues.queue",
         "xsem.runtime.queues.progress -> xsem.runtime.queues.queue"),
        ("xsem/runtime/diagnostics/timeout_error.py", "import xsem.runtime.diagnostics.pending_operations",
         "xsem.runtime.diagnostics.timeout_error -> xsem.runtime.diagnostics.pending_operations"),
    ],
)
def test_upward_import_in_xsem_is_reported(copy: Path, module: str, planted: str, reported: str) -> None:
    path = copy / module
    path.write_text(path.read_text() + f"\n{planted}\n")
    code, said = check(copy)
    assert code == 1
    assert reported in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("xsem.runtime.device_state", "xsem.runtime.queues.queue"),
        ("xsem.runtime.semaphore_state", "xsem.runtime.queues.prepared_append"),
        ("xsem.facade.image", "xsem.facade.memory"),
        ("xsem.facade.buffer", "xsem.facade.device"),   # only a resource names its device
    ],
)
def test_upward_import_for_annotations_is_reported(copy: Path, module: str, imported: str) -> None:
    path = copy / f"{module.replace('.', '/')}.py"
    planted = f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {imported}\n"
    path.write_text(f"{path.read_text()}\n{planted}")
    code, said = check(copy)
    assert code == 1
    assert f"{module} -> {imported}" in said


@pytest.mark.slow
@pytest.mark.parametrize("planted", [
    "import xsem.facade.device", "from xsem import open_device", "import xsem.data.handles",
    "from xsem.facade.discovery import devices",
    "def late():\n    import xsem.runtime.device_state",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import xsem.runtime.lifetime",
])
@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_that_imports_more_of_xsem_is_reported(copy: Path, backend: str, planted: str) -> None:
    (contracts.packages(copy)[backend] / "planted.py").write_text(planted + "\n")
    code, said = check(copy)
    assert code == 1
    assert f"{backend}.planted -> xsem" in said


def test_every_folder_with_modules_is_a_package() -> None:
    # A module in a folder without __init__.py is installed, and no contract sees it.
    folders = {path.parent for root in contracts.packages(ROOT).values() for path in root.rglob("*.py")}
    assert [str(each) for each in folders if not (each / "__init__.py").exists()] == []


@pytest.mark.slow
def test_backend_with_allowed_imports_is_not_reported(copy: Path) -> None:
    add_package(copy, "backends/acme/xsem_acme",
                "import xsem.spi\nfrom xsem.types import SemaphoreKind\nimport xsem.errors\n")
    code, said = check(copy)
    assert code == 0, said


@pytest.mark.slow
def test_new_backend_is_under_contract_at_once(copy: Path) -> None:
    add_package(copy, "backends/acme/xsem_acme", "import xsem.facade.device\n")
    code, said = check(copy)
    assert code == 1
    assert "xsem_acme -> xsem.facade.device" in said


def test_backend_that_imports_another_is_reported(copy: Path) -> None:
    add_package(copy, "backends/acme/xsem_acme", "import xsem_host\n")
    code, said = check(copy)
    assert code == 1
    assert "xsem_acme -> xsem_host" in said


@pytest.mark.slow
def test_circle_in_a_backend_is_reported(copy: Path) -> None:
    path = copy / "backends/vulkan/xsem_vulkan/memory.py"
    path.write_text(f"{path.read_text()}\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
                    "    import xsem_vulkan.images\n")
    code, said = check(copy)
    assert code == 1
    assert "No circle of imports in a backend or in the suite BROKEN" in said


@pytest.mark.slow
def test_suite_that_imports_a_backend_is_reported(copy: Path) -> None:
    planted = "import xsem\nimport xsem_host\n"
    if suite := contracts.packages(copy).get("xsem_conformance"):
        (suite / "planted.py").write_text(planted)
    else:
        add_package(copy, "conformance/xsem_conformance", planted)
    code, said = check(copy)
    assert code == 1
    assert "The conformance suite imports no backend BROKEN" in said
    assert "-> xsem_host" in said


@pytest.mark.variants
@pytest.mark.parametrize("room", ["xsem", "xsem.data", "xsem.facade", "xsem.runtime.queues"])
def test_module_without_a_layer_is_reported(copy: Path, room: str) -> None:
    (copy / room.replace(".", "/") / "planted.py").write_text("")
    code, said = check(copy)
    assert code == 1
    assert f"{room}.planted" in said

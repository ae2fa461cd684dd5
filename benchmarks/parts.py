"""Count the work of one append, of one frame and of one import.

    tests/drivers/run cuda -- python benchmarks/parts.py --json benchmarks/parts.json

The driver is the stand-in for CUDA. Unlike times, the counts are nearly the same on all machines with the same Python
and the same compiler. In pure Python, the command counts calls of Python functions, calls of C functions, and the files
of xsem with functions that each step calls. With the compiled part, valgrind counts the instructions of the calling
thread by their place:

- driver: the functions of the driver
- GIL: the release and the acquisition of the GIL around the driver's functions
- xsem: the compiled part
- bindings: cuda.bindings
- interpreter: all other instructions: Python itself and its memory, also on behalf of the other places

The garbage collector is off. The exit status is 3 if valgrind is not installed or xsem is not compiled.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from bench.frames import LABELS, Scene
from bench.imports import fd_of, import_documented
from bench.rig import Rig, open_rig
from bench.ways import REUSED, XSEM
from xsem.spi import compiled

_STEPS: Final = 400
_IMPORTS: Final = 50
_WARM_UPS: Final = 3
_SIGNAL: Final = "signal"
_SEMAPHORE: Final = "import of a semaphore"
_ALL: Final = (_SIGNAL, *LABELS, _SEMAPHORE)
_PLACES: Final = ("driver", "GIL", "xsem", "bindings", "interpreter")
_NOT_TRIED: Final = 3

_Step = Callable[[int], object]


# ---- the steps
def _steps(rig: Rig, scene: Scene, label: str) -> dict[str, _Step]:
    """Return the step of cuda.bindings and the step of xsem."""
    if label in LABELS:
        return scene.steps(label)
    kept: list[Any] = rig.shared(1)   # kept until the end of the process
    if label == _SIGNAL:
        ours, semaphore = rig.commands.append_signal, kept[0].here
        native = scene.native("signal", semaphore.native_handle)
        return {REUSED: lambda value: native(value) if kept else None, XSEM: lambda value: ours(semaphore, value)}
    desc = kept[0].there.export(for_device=rig.device)
    return {REUSED: lambda _: kept.append(import_documented(rig.driver, fd_of(desc))),
            XSEM: lambda _: kept.append(rig.device.import_semaphore(desc))}


def _run(label: str, way: str, work: Callable[[Rig, _Step], None]) -> None:
    with open_rig("cuda:0", "host", c_loop=None, quick=True) as rig, Scene(rig) as scene:
        step = _steps(rig, scene, label)[way]
        for _ in range(_WARM_UPS):   # from then on, events of the driver and memory of Python are reused
            for value in range(rig.values(_count(label)), rig.value + 1):
                step(value)
            rig.settle()
            scene.tidy()
        gc.collect()
        gc.disable()
        work(rig, step)
        gc.enable()


def _count(label: str) -> int:
    """Return the number of steps of a measurement."""
    return _IMPORTS if label == _SEMAPHORE else _STEPS


# ---- calls, by the profiler of Python
def _calls(rig: Rig, step: _Step, count: int) -> None:
    counts, files = {"python": 0, "c": 0}, Counter[str]()

    def note(frame: Any, event: str, _argument: Any) -> None:
        if event == "call":
            counts["python"] += 1
            files[frame.f_code.co_filename] += 1
        elif event == "c_call":
            counts["c"] += 1

    first = rig.values(count)
    sys.setprofile(note)
    for value in range(first, first + count):
        step(value)
    sys.setprofile(None)
    print(json.dumps({**{name: round(each / count) for name, each in counts.items()},
                      "files": sum("/xsem" in name and calls >= count for name, calls in files.items())}))


# ---- instructions, by valgrind
def _instructions(rig: Rig, step: _Step, count: int) -> None:
    first = rig.values(count + 1)
    _collect("on")
    for value in range(first, first + count):
        step(value)
    _collect("off")
    rig.settle()


def _collect(what: str) -> None:
    subprocess.run(["callgrind_control", "-i", what, str(os.getpid())], check=True, stdout=subprocess.DEVNULL)


def _under_valgrind(label: str, way: str, count: int, folder: Path) -> dict[str, int]:
    """Return the instructions of the main thread, by place."""
    out = folder / "callgrind"
    for old in folder.glob("callgrind*"):
        old.unlink()
    child = [sys.executable, __file__, "--child", label, "--way", way, "--steps", str(count)]
    done = subprocess.run(["valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes",
                           "--compress-strings=no", "--compress-pos=no", f"--callgrind-out-file={out}", *child],
                          check=False, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{label}, {way}: valgrind ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return by_place(Path(f"{out}-01").read_text())


def by_place(profile: str) -> dict[str, int]:
    """Sum the instructions of a profile by place."""
    # A call of the driver or of the GIL counts together with the functions inside the call.
    whole = {"driver": 0, "GIL": 0}
    own = {"xsem": 0, "bindings": 0}
    library, function, called, total = "", "", "", 0
    lines = iter(profile.splitlines())
    for line in lines:
        key, _, value = line.partition("=")
        if key == "ob":
            library = value
        elif key == "fn":
            function = value
        elif key == "cfn":
            called = value
        elif key == "calls":
            place = _place_of_call(called)
            if place and not _place_of_call(function):
                whole[place] += int(next(lines).split()[1])
            else:
                next(lines)
        elif line[:1].isdigit():
            cost = int(line.split()[1])
            total += cost
            if "/xsem" in library and not _place_of_call(function):
                own["xsem"] += cost
            elif "/cuda/bindings" in library:
                own["bindings"] += cost
    found = {**whole, **own}
    return {**found, "interpreter": total - sum(found.values())}


def _place_of_call(function: str) -> str:
    if function.startswith("cu") and function[2:3].isupper():
        return "driver"
    return "GIL" if function in {"PyEval_SaveThread", "PyEval_RestoreThread"} else ""


# ---- the command
def _measured(label: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", label, "--way", XSEM]
    done = subprocess.run(command, env={**os.environ, "XSEM_PURE": "1"}, check=True, capture_output=True, text=True,
                          timeout=120)
    row: dict[str, Any] = {"label": label, "pure": json.loads(done.stdout), "compiled": {}}
    for way in (REUSED, XSEM):
        none, some = (_under_valgrind(label, way, count, folder) for count in (0, _count(label)))
        row["compiled"][way] = {place: round((some[place] - none[place]) / _count(label)) for place in _PLACES}
    print(json.dumps(row), flush=True)
    return row


def page(record: dict[str, Any]) -> str:
    """Return the table of a record, in Markdown."""
    lines = ["| | calls in Python | in C | files | " + " | ".join(_PLACES) + " | all | cuda.bindings |",
             "|---" * (len(_PLACES) + 6) + "|"]
    for row in record["rows"]:
        ours, theirs, pure = row["compiled"][XSEM], row["compiled"][REUSED], row["pure"]
        cells = [row["label"], pure["python"], pure["c"], pure["files"], *(ours[each] for each in _PLACES),
                 sum(ours.values()), sum(theirs.values())]
        lines.append("| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Count, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=_ALL, action="append", help="only this row; may be repeated")
    parser.add_argument("--json", type=Path, help="file for the record")
    parser.add_argument("--child", choices=_ALL, help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=(REUSED, XSEM), help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child is not None:
        count = _count(asked.child) if asked.steps is None else asked.steps
        work = _calls if asked.steps is None else _instructions
        _run(asked.child, asked.way, lambda rig, step: work(rig, step, count))
        return 0
    if not (shutil.which("valgrind") and shutil.which("callgrind_control")):
        print("parts: valgrind is not installed", file=sys.stderr)
        return _NOT_TRIED
    if not compiled():
        print("parts: xsem is not compiled here: make compiled", file=sys.stderr)
        return _NOT_TRIED
    with tempfile.TemporaryDirectory() as folder:
        rows = [_measured(label, Path(folder)) for label in asked.only or _ALL]
    record = {"schema": 1, "kind": "parts", "python": platform.python_version(), "machine": platform.machine(),
              "cuda-bindings": metadata.version("cuda-bindings"), "rows": rows}
    print(page(record))
    if asked.json is not None:
        asked.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

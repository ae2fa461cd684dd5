"""Measure the cost of xsem beside the driver and cuda-python, in one run.

    python benchmarks/run.py --device cuda:0 --exporter vulkan --json out.json
    tests/drivers/run cuda -- python benchmarks/run.py --quick     # on the stand-in: a test of the command

With the compiled part of xsem, a second process measures xsem in pure Python (XSEM_PURE=1), beside the same other ways.
The results are medians of interleaved repetitions. The aims do not change the exit status:

- 0: the figures are measured
- 1: a signal did not arrive, the second process failed, or the deadline passed
- 3: nothing could be measured

Without a C compiler, build the loop in C on another machine (`--build-c-loop FILE`). Then pass its file
(`--c-loop FILE`).
"""

from __future__ import annotations

import argparse
import datetime as dt
import faulthandler
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import xsem
from bench import aims, copies, frames, images, imports, objects, renderer, signals, tensors, trips, waits
from bench.c_loop import CLoop, build
from bench.rig import open_rig, raise_fd_limit
from bench.timing import Series
from xsem.spi import compiled

SCHEMA: Final = 2
_PARTS: Final = {"signals": signals, "frames": frames, "imports": imports, "trips": trips, "copies": copies,
                 "images": images, "tensors": tensors, "objects": objects, "waits": waits, "renderer": renderer}
_PACKAGES: Final = ("xsem", "cuda-bindings", "numpy")
_NOT_TRIED: Final = 3


def _c_loop(asked: argparse.Namespace, folder: Path) -> tuple[CLoop | None, str]:
    """Return the loop in C and its origin, or None and the reason for its absence."""
    if asked.c_loop is not None:
        return CLoop(asked.c_loop.resolve()), "built beforehand"
    missing = build(folder / "c_loop.so")
    if missing is not None:
        return None, f"not measured: {missing}"
    return CLoop(folder / "c_loop.so"), "compiled here"


def _show(series: Series) -> None:
    reference = next(iter(series.ways))
    print(f"{series.group}, {series.label} ({series.repetitions} repetitions)")
    for way, figure in series.ways.items():
        ratio = series.ratio(way, reference)
        print(f"    {way:<36} {figure.median:>10.2f} {series.unit:<5} [{figure.low:.2f} … {figure.high:.2f}]"
              f"  {ratio:.2f} x", flush=True)


def _packages() -> dict[str, str]:
    found = {"python": platform.python_version(), "xsem": xsem.__version__}
    for name in _PACKAGES[1:]:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _measure(asked: argparse.Namespace, c_loop: CLoop | None, origin: str) -> dict[str, Any]:
    found: list[Series] = []
    with open_rig(asked.device, asked.exporter, c_loop=c_loop, quick=asked.quick, load=asked.load) as rig:
        info = rig.device.info
        print(f"{info.name}, driver {info.driver_version}; exporter {rig.exporter.info.name}; C loop: {origin}",
              flush=True)
        for name in asked.only or _PARTS:
            for series in _PARTS[name].measure(rig):
                found.append(series)
                _show(series)
        exporter = rig.exporter.info.name
    judged = aims.aims(found, compiled=compiled())
    print("aims, with the compiled part:" if compiled() else "aims, pure Python:")
    for aim in judged:
        print(f"    {aim}")
    return {
        "schema": SCHEMA, "kind": "benchmarks", "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": asked.commit, "compiled": compiled(), "quick": asked.quick, "device": info.name, "exporter": exporter,
        "driver_version": info.driver_version,
        "platform": f"{sys.platform} {platform.release()} {platform.machine()}", "packages": _packages(),
        "c_loop": origin, "series": [each.as_json() for each in found],
        "aims": [each.as_json() for each in judged],
    }


def _without_compiled(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure in a process without the compiled part, and return its record."""
    path = folder / "pure.json"
    command = [sys.executable, __file__, "--device", asked.device, "--exporter", asked.exporter, "--json", str(path),
               "--deadline", str(asked.deadline)]
    command += [part for name in asked.only or () for part in ("--only", name)]
    command += ["--quick"] if asked.quick else []
    command += ["--c-loop", str(asked.c_loop)] if asked.c_loop is not None else []
    command += ["--load", asked.load] if asked.load is not None else []
    sys.stdout.flush()
    subprocess.run(command, env={**os.environ, "XSEM_PURE": "1"}, check=True, stdin=subprocess.DEVNULL,
                   timeout=asked.deadline + 30)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--exporter", default="host", help="vulkan, or host for the stand-in")
    parser.add_argument("--json", type=Path, help="file for the record")
    parser.add_argument("--quick", action="store_true", help="few and short repetitions")
    parser.add_argument("--only", choices=_PARTS, action="append", help="only this part; may be repeated")
    parser.add_argument("--deadline", type=float, default=300.0, help="seconds until the run stops and shows its place")
    parser.add_argument("--commit", help="commit id in the record")
    parser.add_argument("--load", metavar="FILE",
                        help="work for the part renderer: a program with a function load(device, exporter)")
    parser.add_argument("--c-loop", type=Path, help="file of the loop in C, built beforehand")
    parser.add_argument("--build-c-loop", type=Path, metavar="FILE", help="build the loop in C, and do not measure")
    asked = parser.parse_args()
    if asked.build_c_loop is not None:
        missing = build(asked.build_c_loop)
        if missing is not None:
            print(f"benchmarks: {missing}", file=sys.stderr)
        return _NOT_TRIED if missing else 0
    if sys.platform != "linux":
        print("benchmarks: needs Linux", file=sys.stderr)
        return _NOT_TRIED
    raise_fd_limit()
    # A call into a driver can hang. Only faulthandler then prints the place.
    faulthandler.dump_traceback_later(asked.deadline, exit=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            try:
                loop, origin = _c_loop(asked, Path(folder))
            except OSError as error:
                print(f"benchmarks: {error}", file=sys.stderr)
                return _NOT_TRIED
            record = _measure(asked, loop, origin)
            pure = None
            if compiled():
                faulthandler.cancel_dump_traceback_later()   # the second process has its own deadline
                pure = _without_compiled(asked, Path(folder))
            record["pure"] = pure and {"series": pure["series"], "aims": pure["aims"]}
    except (xsem.BackendUnavailableError, xsem.DeviceNotFoundError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return _NOT_TRIED
    except (AssertionError, subprocess.SubprocessError) as wrong:
        print(f"benchmarks: {wrong}", file=sys.stderr)
        return 1
    if asked.json is not None:
        asked.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

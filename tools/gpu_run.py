"""Runs the demo and the GPU tests on a machine with a GPU, and writes down what it saw.

    python tools/gpu_run.py --commit SHA [--out docs/gpu-runs]

Writes ``DATE-GPU.json`` (schema 1): date, commit, GPU, driver, packages, devices as `xsem devices --json` lists them,
each command with its status and last line, each test with its outcome. Exit status: 0 everything as it must be,
1 something not, 3 there is no GPU with CUDA and Vulkan.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from importlib import metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGES: Final = ("cuda-bindings", "cupy", "cupy-cuda12x", "cupy-cuda13x", "torch", "numpy", "cffi", "pyopencl",
                    "pluggy")
_DEMO: Final = ("demo", "--device", "cuda:0", "--exporter", "vulkan")
_FRESH: Final = "demo: 120 frames, 0 stale, 0 errors"
_BY: Final = "filtered by "
_STALE: Final = "demo: 120 frames, 120 stale, 0 errors"
_FILE_S: Final = 90.0   # for the tests of one file
# What is asked, the last line that it must end with, and the status.
COMMANDS: Final = (
    ((*_DEMO,), _FRESH, 0),
    ((*_DEMO, "--binary"), _FRESH, 0),
    ((*_DEMO, "--without-wait"), _STALE, 1),
    ((*_DEMO, "--without-wait", "--binary"), _STALE, 1),
)


def xsem(*arguments: str, timeout_s: float = 120) -> tuple[int, str]:
    """Status and output of a command; 124 where it did not end in time."""
    try:
        done = subprocess.run([sys.executable, "-m", "xsem", *arguments], cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False,
                              stdin=subprocess.DEVNULL, env={**os.environ, "NO_COLOR": "1"})
    except subprocess.TimeoutExpired as late:
        return 124, str(late.output or "")
    return done.returncode, done.stdout


def run_commands(picture: Path) -> list[dict[str, Any]]:
    """Each of `COMMANDS`, and how it ended."""
    steps = []
    for arguments, expected, status in COMMANDS:
        began = time.monotonic()
        found, output = xsem(*arguments, "--output", str(picture))
        lines = output.splitlines()
        step = {
            "command": " ".join(["xsem", *arguments]),
            "status": found,
            "last_line": lines[-1] if lines else "",
            "filtered_by": "".join(line.removeprefix(_BY) for line in lines if line.startswith(_BY)),
            "seconds": round(time.monotonic() - began, 1),
        }
        step["as_expected"] = (found, step["last_line"]) == (status, expected)
        if not step["as_expected"]:
            step["output"] = output[-4000:]
        steps.append(step)
        print(f"{step['command']}: {step['last_line']} ({step['seconds']} s, status {found})", flush=True)
    return steps


def run_tests(folder: Path) -> dict[str, Any]:
    """The tests in ``tests/gpu``, each with its outcome."""
    report = folder / "gpu-tests.xml"
    cases: dict[str, str] = {}
    details: dict[str, str] = {}
    status = 0
    # A process for each file: a driver that crashes costs that file, and no other.
    for file in sorted((ROOT / "tests" / "gpu").glob("test_*.py")):
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "pytest", "-m", "gpu", str(file), "-q", f"--junitxml={report}"],
                cwd=ROOT, check=False, stdin=subprocess.DEVNULL, timeout=_FILE_S,
            ).returncode
        except subprocess.TimeoutExpired:
            ended = 124   # a driver holds the interpreter, so that no deadline inside can end it
        status = status or ended
        if not report.exists():
            cases[file.stem] = f"ended with {ended}"
            continue
        for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest has just written it
            name = f"{case.get('classname', '')}.{case.get('name')}"
            bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
            # What a driver does not offer is told, and is no fault of ours; that something is missing here would be.
            lacks = bad is not None and bad.tag == "skipped" and "the driver does not" in (bad.get("message") or "")
            cases[name] = "passed" if bad is None else "not offered" if lacks else bad.tag
            if bad is not None:
                details[name] = (bad.get("message") or "")[:500]
        report.unlink()
    outcomes = sorted(set(cases.values()))
    counts = {outcome: sum(each == outcome for each in cases.values()) for outcome in outcomes}
    return {"status": status, "counts": counts, "cases": cases, "details": details}


def gpu() -> dict[str, str]:
    """Name and driver of the GPU, as nvidia-smi has them."""
    try:
        line = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=True,
                              capture_output=True, text=True, timeout=60).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return {}
    name, driver = (part.strip() for part in line.split(","))
    return {"name": name, "driver": driver}


def packages() -> dict[str, str]:
    """Versions of what takes part."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def main() -> int:
    """Run all of it, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", required=True, help="what is being run")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "gpu-runs")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    card = gpu()
    _, listed = xsem("devices", "--json")
    try:
        devices = json.loads(listed[listed.index("{"):])
    except ValueError:
        devices = {"output": listed[-4000:], "devices": []}
    there = {each["backend"] for each in devices["devices"]}
    if not card or not {"cuda", "vulkan"} <= there:
        print(f"no GPU with CUDA and Vulkan: {card or 'no nvidia-smi'}, devices of {sorted(there)}", file=sys.stderr)
        print(listed[-4000:], file=sys.stderr)
        return 3
    now = dt.datetime.now(dt.UTC)
    record = {
        "schema": 1,
        "date": now.isoformat(timespec="seconds"),
        "commit": asked.commit,
        "gpu": card,
        "platform": f"{sys.platform} {platform.release()} {platform.machine()}",
        "packages": packages(),
        "devices": devices["devices"],
        "commands": run_commands(asked.out / "demo.png"),
        "tests": run_tests(asked.out),
    }
    good = all(step["as_expected"] for step in record["commands"]) and record["tests"]["status"] == 0
    record["good"] = good and "passed" in record["tests"]["counts"]
    record["good"] = record["good"] and set(record["tests"]["counts"]) <= {"passed", "not offered"}
    words = re.sub(r"[^a-z0-9]+", "-", card["name"].lower()).strip("-")
    path = asked.out / f"{now:%Y-%m-%d-%H%M}-{words}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{path}: {'good' if record['good'] else 'NOT good'}, tests {record['tests']['counts']}")
    return 0 if record["good"] else 1


if __name__ == "__main__":
    sys.exit(main())

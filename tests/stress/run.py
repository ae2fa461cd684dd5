"""The stress run: ``python tests/stress/run.py --device cuda:0 --exporter vulkan --json out.json``.

Each part runs in a separate process. All random choices follow --seed, which is printed. Exit status: 0 all parts
passed, 1 a part failed, 3 the run could not be tried.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Final

if not __package__:   # started as a file: the modules of its folder belong to the package `stress`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import xsem
from stress import fuzz, imports, peers, signals
from stress.deadline import end_after
from stress.rig import Result, open_rig

# The size of each part: operations, imports, kills, examples of each kind.
SCALES: Final = {
    "short": {"signals": 20_000, "imports": 600, "peers": 5, "fuzz": 60},
    "long": {"signals": 1_000_000, "imports": 10_000, "peers": 60, "fuzz": 2_000},
}
# The largest share of the time for each part in a full run: a part that hangs leaves time for the others.
SHARES: Final = {"signals": 0.5, "imports": 0.25, "peers": 0.5, "fuzz": 0.25}
SCHEMA: Final = 1
_NOT_TRIED: Final = 3
_MARGIN_S: Final = 2.0


def job(name: str, asked: argparse.Namespace) -> Result:
    """Run one part in this process."""
    amount = SCALES[asked.scale][name]
    with open_rig(asked.device, asked.exporter, asked.seed) as rig:
        if name == "signals":
            return signals.run(rig, amount)
        if name == "imports":
            return imports.run(rig, amount)
        if name == "peers":
            return peers.run(rig, amount, asked.device, asked.exporter)
        return fuzz.run(rig, amount)


def _job_main(asked: argparse.Namespace) -> int:
    end_after(asked.deadline)
    try:
        result = job(asked.job, asked)
    except (xsem.BackendUnavailableError, xsem.DeviceNotFoundError) as error:
        print(f"stress: {error}", file=sys.stderr)
        return _NOT_TRIED
    except Exception:
        result = Result(failures=[traceback.format_exc()])
    Path(asked.json).write_text(json.dumps({"counts": result.counts, "failures": result.failures, **result.more}))
    return 0


def _run_job(name: str, asked: argparse.Namespace, folder: Path, left_s: float) -> dict[str, Any]:
    """Run one part in a fresh process. Return its record, or how it ended."""
    out = folder / f"{name}.json"
    command = [sys.executable, str(Path(__file__).resolve()), "--job", name, "--device", asked.device, "--exporter",
               asked.exporter, "--scale", asked.scale, "--seed", str(asked.seed), "--json", str(out), "--deadline",
               str(max(1.0, left_s - _MARGIN_S))]
    began = time.monotonic()
    # In a new process group, so that the peers of a killed part end with it.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        try:
            _, errors = process.communicate(timeout=left_s)
            status = process.returncode
        except subprocess.TimeoutExpired:
            status, errors = 124, "it did not end"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    seconds = round(time.monotonic() - began, 1)
    if status != 0 or not out.exists():
        return {"name": name, "seconds": seconds, "status": status, "counts": {},
                "failures": [f"ended with status {status} after {seconds} s:\n{errors[-8000:]}"]}
    return {"name": name, "seconds": seconds, "status": status, **json.loads(out.read_text())}


def main() -> int:
    """Run all parts, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--exporter", default="host", help="vulkan, or host for the stand-in")
    parser.add_argument("--json", type=Path, help="where to write the record")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--scale", choices=SCALES, default="long")
    parser.add_argument("--only", choices=SCALES["long"], action="append", help="only this part; may be repeated")
    parser.add_argument("--deadline", type=float, default=240.0, help="seconds for all of it")
    parser.add_argument("--commit", help="for the record")
    parser.add_argument("--job", choices=SCALES["long"], help=argparse.SUPPRESS)
    parser.add_argument("--peer", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.peer:
        what, fd, options = asked.peer
        peers.peer_main(what, int(fd), options)
        return 0
    if asked.job:
        return _job_main(asked)
    if sys.platform != "linux":
        print("stress: needs Linux", file=sys.stderr)
        return _NOT_TRIED
    print(f"stress: seed {asked.seed}, {asked.scale}, {asked.device} with {asked.exporter}", flush=True)
    record = {
        "schema": SCHEMA, "kind": "stress", "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": asked.commit, "seed": asked.seed, "scale": asked.scale, "device": asked.device,
        "exporter": asked.exporter, "xsem": xsem.__version__, "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.release()} {platform.machine()}", "parts": [],
    }
    try:
        with xsem.open_device(asked.device) as device:
            record |= {"device_name": device.info.name, "driver_version": device.info.driver_version}
    except (xsem.BackendUnavailableError, xsem.DeviceNotFoundError) as error:
        print(f"stress: {error}", file=sys.stderr)
        return _NOT_TRIED
    end = time.monotonic() + asked.deadline
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.only or SCALES["long"]:
            limit_s = asked.deadline * (1.0 if asked.only else SHARES[name])
            part = _run_job(name, asked, Path(folder), max(1.0, min(limit_s, end - time.monotonic())))
            record["parts"].append(part)
            counts = ", ".join(f"{number:,} {what}" for what, number in part["counts"].items()
                               if not what.startswith("reason "))
            print(f"{'ok    ' if not part['failures'] else 'FAILED'}  {name}: {counts} ({part['seconds']} s)",
                  flush=True)
            for failure in part["failures"]:
                print(f"        {failure}", flush=True)
    good = sum(not part["failures"] for part in record["parts"])
    record["good"] = good == len(record["parts"])
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(record, indent=1) + "\n")
    print(f"stress: {good} of {len(record['parts'])} parts held, seed {asked.seed}")
    return 0 if record["good"] else 1


if __name__ == "__main__":
    sys.exit(main())

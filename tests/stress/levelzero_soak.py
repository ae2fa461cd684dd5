"""Soak of the Level Zero backend on the simulated driver: random latency, lags and faults, with 4 threads.

    python tests/stress/levelzero_soak.py --seconds 1200 --asan --json out.json

Each round is a new process with random settings of the driver. A violation is a value that is wrong after a wait has
ended, a wait that was let through, an overlapping call on a list, an error that is no `XsemError`, an object or file
descriptor that is left, an end of the process by the driver or the sanitizer, or a round that does not end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

TESTS: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from stress.deadline import end_after  # noqa: E402

__all__ = ["main"]

OUT_OF_MEMORY: Final = "0x70000002"
THREADS: Final = 4
BOUND_S: Final = 20.0
FAULTS: Final = (
    "zeEventCreate", "zeEventPoolCreate", "zeEventQueryStatus", "zeEventHostSynchronize", "zeCommandListAppendBarrier",
    "zeCommandListAppendWaitExternalSemaphoreExt", "zeCommandListAppendSignalExternalSemaphoreExt",
    "zeDeviceImportExternalSemaphoreExt", "zeContextCreate", "zeCommandListCreateImmediate", "zeMemAllocDevice",
    "zeMemGetAllocProperties",
)


# ---- one round, in a process on the simulated driver
class Round:
    """The threads of a round on one shared device."""

    def __init__(self, seed: int, seconds: float) -> None:
        from support.levelzero_rig import Rig

        import xsem

        self.xsem = xsem
        self.seed = seed
        self.until = time.monotonic() + seconds
        self.host = xsem.open_device("host")
        self.app = Rig(self.host)
        self.device = xsem.open_device("levelzero:0", native=self._native())
        self.violations: list[str] = []
        self.counts = dict.fromkeys(("frames", "refused", "errors", "releases", "binaries", "devices", "exports"), 0)

    def _native(self) -> object:
        from xsem_levelzero import Native

        return Native(self.app.driver, self.app.context, self.app.device)

    def run(self) -> dict[str, Any]:
        """Run the threads. Return the counts and the violations."""
        threads = [threading.Thread(target=self._guarded, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        chance = random.Random(self.seed)
        library = self.app.library()
        while any(thread.is_alive() for thread in threads):
            time.sleep(chance.uniform(0.001, 0.05))
            library.simze_fail(f"{chance.choice(FAULTS)}:{OUT_OF_MEMORY}:{chance.randint(1, 5)}".encode(), None)
        library.simze_fail(None, None)
        for thread in threads:
            thread.join()
        self._end()
        for name in (b"let_through", b"overlaps"):
            if self.app.counter(name):
                self.violations.append(f"{name.decode()}: {self.app.counter(name)}")
        return {"counts": self.counts, "violations": self.violations}

    def _end(self) -> None:
        self.device.release()
        deadline = time.monotonic() + BOUND_S
        while self.device.releasing() and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.device.releasing():
            self.violations.append(f"not released: {self.device.releasing()[:5]}")
            return
        self.app.end()
        count = self.app.library().simze_alive
        while (alive := int(count())) != 2 and time.monotonic() < deadline:   # the driver and its device
            time.sleep(0.01)
        if alive != 2:
            self.violations.append(f"{alive - 2} objects of the driver are left")

    def _guarded(self, number: int) -> None:
        try:
            self._thread(number)
        except BaseException as error:
            self.violations.append(f"thread {number}: {type(error).__name__}: {error}")

    def _thread(self, number: int) -> None:
        chance = random.Random(f"{self.seed} {number}")
        in_order = number % 2 == 0
        stream = self.app.stream(flags=2 if in_order else 0)
        own, borrowed = self._lists(stream, in_order)
        while time.monotonic() < self.until:
            act = chance.choice((self._frame, self._frame, self._signals, self._binary, self._exports, self._device))
            try:
                act(chance, own if chance.random() < 0.5 else borrowed, stream)
            except self.xsem.BusyError as error:
                if error.reason != "signal_behind_wait":
                    raise
                self.counts["refused"] += 1
            except (self.xsem.OutOfMemoryError, self.xsem.BadHandleError):
                self.counts["errors"] += 1
            with contextlib.suppress(self.xsem.OutOfMemoryError):
                own.query()
                borrowed.query()
        for each in (own, borrowed):
            while True:
                with contextlib.suppress(self.xsem.OutOfMemoryError):
                    each.synchronize(timeout_s=BOUND_S)
                    break

    def _lists(self, stream: int, in_order: bool) -> tuple[Any, Any]:
        while True:
            with contextlib.suppress(self.xsem.OutOfMemoryError):
                own = self.device.create_command_list()
                return own, self.device.command_list(stream, in_order=in_order)

    def _semaphore(self, kind: Any) -> tuple[Any, Any]:
        there = self.host.create_semaphore(kind)
        with there.export(for_device=self.device) as desc:
            return there, self.device.import_semaphore(desc)

    def _frame(self, chance: random.Random, commands: Any, stream: int) -> None:
        """Append waits and later signals, and the application's own barriers between them."""
        from support.levelzero_facade import TIMELINE

        in_there, start = self._semaphore(TIMELINE)
        out_there, end = self._semaphore(TIMELINE)
        value = 0
        try:
            for _ in range(chance.randint(1, 5)):
                for _ in range(chance.randint(1, 3)):
                    value += 1
                    commands.append_wait(start, value)
                    if commands.native_handle == stream:
                        commands.append_work(lambda: self._own_work(stream))
                    if chance.random() < 0.5:
                        time.sleep(chance.uniform(0, 0.002))
                    if chance.random() < 0.3:   # before a signal that the driver may refuse
                        in_there.host_signal(value)
                        commands.synchronize(timeout_s=BOUND_S)
                        commands.append_signal(end, value)
                    else:
                        commands.append_signal(end, value)
                        in_there.host_signal(value)
                commands.synchronize(timeout_s=BOUND_S)
                if out_there.value() != value:
                    self.violations.append(f"{out_there.value()} after the end of the signal of {value}")
                self.counts["frames"] += 1
        finally:
            in_there.host_signal(value + 100)   # after an error, a wait may be pending
            start.release()
            end.release()

    def _own_work(self, stream: int) -> None:
        from support.levelzero_raw import CodeError

        with contextlib.suppress(CodeError):   # a fault
            self.app.barrier(stream)

    def _signals(self, chance: random.Random, commands: Any, stream: int) -> None:
        """Append a signal, and release the semaphore behind it or after its event."""
        from support.levelzero_facade import TIMELINE

        there, here = self._semaphore(TIMELINE)
        event = self.device.create_event()
        try:
            commands.append_signal(here, 5, signal_event=event)
            if chance.random() < 0.5:
                event.wait(timeout_s=BOUND_S)
                if there.value() != 5:
                    self.violations.append(f"{there.value()} after the event of the signal of 5")
        finally:
            here.release()
            self.counts["releases"] += 1
        there.host_wait(5, timeout_s=BOUND_S)

    def _binary(self, chance: random.Random, commands: Any, stream: int) -> None:
        """Wait once for a binary semaphore whose signal comes before or after the append."""
        from support.levelzero_facade import BINARY

        there, here = self._semaphore(BINARY)
        try:
            early = chance.random() < 0.5
            if early:
                there.host_signal()
            commands.append_wait(here)
            if not early:
                time.sleep(chance.uniform(0, 0.002))
                there.host_signal()
        except BaseException:
            there.host_signal()
            raise
        finally:
            here.release()
            self.counts["binaries"] += 1

    def _exports(self, chance: random.Random, commands: Any, stream: int) -> None:
        """Create memory, export and import it, and read through the import the bytes of a fill of the device."""
        made = self.device.create_memory("OPAQUE_FD", chance.randint(1, 1 << 16))
        imported = None
        try:
            with made.export() as desc:
                imported = self.device.import_memory(desc)
            byte = bytes([chance.randrange(256)])
            commands.append_fill(made.map_buffer(), byte)
            commands.synchronize(timeout_s=BOUND_S)
            if bytes(imported.map_buffer().copy_to_host()) != byte * imported.allocation_size:
                self.violations.append("the import of exported memory has other bytes")
            self.counts["exports"] += 1
        finally:
            if imported is not None:
                imported.release()
            made.release()

    def _device(self, chance: random.Random, commands: Any, stream: int) -> None:
        """Open another device, use it, and release it."""
        if chance.random() > 0.2:
            return
        with self.xsem.open_device("levelzero:0") as device:
            device.create_command_list().append_barrier(signal_event=device.create_event())
        self.counts["devices"] += 1


def _one_round(seed: int, seconds: float) -> int:
    logging.getLogger("xsem").setLevel(logging.CRITICAL)   # markers that the driver refuses are logged
    end_after(seconds + 3 * BOUND_S)
    found = Round(seed, seconds).run()
    print(json.dumps(found), flush=True)
    return 1 if found["violations"] else 0


# ---- all rounds
def _settings(chance: random.Random) -> dict[str, str]:
    controller, build = chance.choice((
        ("fifo", 38646), ("fifo", 38646), ("lifo", 38645), ("", 38646), ("host-functions", 39758)))
    return {
        "SIMZE_MODE": "intel", "SIMZE_CONTROLLER": controller,
        "SIMZE_DRIVER_VERSION": str(1 << 24 | 6 << 16 | build),
        "SIMZE_LAG_US": str(chance.choice((0, 100, 1000, 20000))), "SIMZE_LATE_US": str(chance.choice((0, 0, 500))),
        "SIMZE_APPEND_US": str(chance.choice((0, 50, 500))),
        "SIMZE_FD": chance.choice(("open", "on-success", "closed")),
        "SIMZE_QUEUES": str(chance.choice((1, 4))),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run rounds until the time is over. Return 1 after a violation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--round-seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--asan", action="store_true", help="build the driver for the address sanitizer")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--round", type=int, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.round is not None:
        return _one_round(options.round, options.round_seconds)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SIMZE_", "ZE_", "ZEL_"))}
    inside: list[str] = []
    if options.asan:
        environment["CFLAGS"] = "-fsanitize=address -fno-omit-frame-pointer"
        library = subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
        inside = ["env", f"LD_PRELOAD={library.stdout.strip()}", "ASAN_OPTIONS=detect_leaks=0"]
    end = time.monotonic() + options.seconds
    rounds: list[dict[str, Any]] = []
    while time.monotonic() < end:
        settings, number = _settings(chance), chance.randrange(2**32)
        lasts = min(options.round_seconds, max(1.0, end - time.monotonic()))
        ran = subprocess.run(
            [str(TESTS / "drivers" / "run"), "levelzero", "--", *inside, sys.executable, str(Path(__file__).resolve()),
             "--round", str(number), "--round-seconds", str(lasts)],
            check=False, capture_output=True, text=True, env={**environment, **settings}, timeout=lasts + 5 * BOUND_S)
        found: dict[str, Any] = {"counts": {}, "violations": []}
        with contextlib.suppress(ValueError, IndexError):
            found = json.loads(ran.stdout.splitlines()[-1])
        if ran.returncode and not found["violations"]:
            found["violations"].append(f"status {ran.returncode}: {ran.stderr[:3000]}")
        rounds.append({"round": number, "settings": settings, **found})
        print(f"round {number}: {found['counts']} {'; '.join(found['violations']) or 'no violation'}", flush=True)
    violations = sum(len(each["violations"]) for each in rounds)
    totals: dict[str, int] = {}
    for each in rounds:
        for name, count in each["counts"].items():
            totals[name] = totals.get(name, 0) + count
    print(f"seed {seed}, {len(rounds)} rounds, {totals}: {violations} violations")
    if options.json is not None:
        options.json.write_text(json.dumps({"seed": seed, "totals": totals, "rounds": rounds}, indent=1) + "\n")
    return 1 if violations or not rounds else 0


if __name__ == "__main__":
    sys.exit(main())

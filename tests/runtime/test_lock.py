"""The lock of the append path, in C code or in Python."""

from __future__ import annotations

import random
import signal
import threading
import time
from typing import Any

import pytest
from support.at_once import in_thread, in_threads
from support.waiting import until

from xsem.runtime.quick import Lock

POSIX_SIGNALS = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals to threads are POSIX")


def owned(lock: Any) -> bool:
    answer: bool = lock._is_owned()
    return answer


def test_lock_is_reentrant() -> None:
    lock = Lock()
    assert not owned(lock)
    with lock:
        assert lock.acquire()
        lock.release()
        assert owned(lock)
        in_thread(lambda: _refused(lock))
    assert not owned(lock)
    in_thread(lambda: _free(lock))


def _refused(lock: Any) -> None:
    assert not owned(lock)
    assert not lock.acquire(False)
    assert not lock.acquire(True, 0.01)
    with pytest.raises(RuntimeError):
        lock.release()


def _free(lock: Any) -> None:
    assert lock.acquire(False)
    lock.release()


def test_release_without_acquire_is_refused() -> None:
    lock = Lock()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            lock.release()
    with lock:
        pass
    with pytest.raises(RuntimeError):
        lock.release()


def test_waiter_gets_the_lock_when_the_owner_releases_it() -> None:
    lock, got = Lock(), threading.Event()

    def wait() -> None:
        with lock:
            got.set()

    lock.acquire()
    lock.acquire()
    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    lock.release()
    assert not got.wait(0.05)
    lock.release()
    for thread in threads:
        thread.join(10)
    assert got.is_set()
    _free(lock)


def test_waiter_that_gives_up_leaves_the_lock_usable() -> None:
    lock = Lock()
    for _ in range(3):
        with lock:
            in_thread(lambda: _refused(lock))
        in_thread(lambda: _free(lock))
        _free(lock)


def test_lock_that_is_dropped_while_it_is_locked() -> None:
    def drop() -> None:
        lock = Lock()
        lock.acquire()
        in_thread(lambda: _refused(lock))

    drop()


def test_one_thread_at_a_time_has_the_lock() -> None:
    lock, inside, counted = Lock(), [0], [0]

    def work(index: int) -> None:
        chance = random.Random(index)
        for _ in range(400):
            how = chance.random()
            if not lock.acquire(how > 0.3, 0.0005 if how > 0.6 else -1):
                continue
            try:
                inside[0] += 1
                assert inside[0] == 1
                if how > 0.9:
                    time.sleep(0)
                with lock:
                    counted[0] += 1
                assert inside[0] == 1
                inside[0] -= 1
            finally:
                lock.release()

    in_threads(4, work)
    assert counted[0] > 0
    _free(lock)


@POSIX_SIGNALS
def test_ctrl_c_ends_the_wait_for_the_lock() -> None:
    lock, locked, go = Lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            locked.set()
            go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert locked.wait(10)
    main = threading.get_ident()
    timer = threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    timer.join()
    assert not owned(lock)
    go.set()
    thread.join()
    _free(lock)


@POSIX_SIGNALS
def test_handler_of_a_signal_does_not_end_the_wait() -> None:
    lock, locked, go = Lock(), threading.Event(), threading.Event()
    handled: list[int] = []

    def hold() -> None:
        with lock:
            locked.set()
            go.wait(30)

    before = signal.signal(signal.SIGUSR1, lambda number, _: handled.append(number))
    try:
        thread = threading.Thread(target=hold)
        thread.start()
        assert locked.wait(10)
        main = threading.get_ident()

        def interrupt() -> None:
            signal.pthread_kill(main, signal.SIGUSR1)
            until(lambda: bool(handled))
            go.set()

        other = threading.Timer(0.05, interrupt)
        other.start()
        assert lock.acquire(True, 30)
        lock.release()
        other.join()
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == [signal.SIGUSR1]

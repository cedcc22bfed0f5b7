"""Time, processor time and memory of this process and all that it started."""

import contextlib
import json
import os
import threading
import time
from pathlib import Path

_SAMPLE_SECONDS = 0.02
_TICK = os.sysconf("SC_CLK_TCK")


def _stat(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _tree():
    """This process and its descendants."""
    parents = {}
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            parents.setdefault(int(_stat(int(entry))[1]), []).append(int(entry))
    tree = [os.getpid()]
    for pid in tree:
        tree.extend(parents.get(pid, []))
    return tree


def _cpu_seconds(tree):
    """User and system, of children that have ended too."""
    return sum(sum(map(int, _stat(pid)[11:15])) for pid in tree) / _TICK


def _field(path, name):
    with contextlib.suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0


def _shared():
    """Shared memory of the machine: page tables of processes count it once for each of them."""
    return _field("/proc/meminfo", "Shmem:")


_shared_before = _shared()


class _Peak(threading.Thread):
    """Memory that no file backs: of the processes, and what they share."""

    def __init__(self, tree):
        super().__init__(daemon=True)
        self.tree, self.done, self.bytes = tree, threading.Event(), 0

    def run(self):
        while not self.done.wait(_SAMPLE_SECONDS):
            own = sum(_field(f"/proc/{pid}/status", "RssAnon:") for pid in self.tree)
            self.bytes = max(self.bytes, own + _shared() - _shared_before)


def keep_freed_memory():
    """Makes processes that are started from now on keep what they free, for their next task."""
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(1 << 30)
    os.environ["MALLOC_TRIM_THRESHOLD_"] = str(1 << 40)


def run(peer, act, output=None):
    """Runs `act` and measures what it takes. Processes that it uses run before it begins: to start them is not
    measured. Where it writes files to the folder `output`, `synced_seconds` is the time until they are on the disk too.
    Returns that, to be reported when the result is validated, and the result."""
    tree = _tree()
    peak = _Peak(tree)
    peak.start()
    cpu, begin = _cpu_seconds(tree), time.perf_counter()
    result = act()
    seconds = time.perf_counter() - begin
    cpu_seconds = _cpu_seconds(tree) - cpu
    peak.done.set()
    peak.join()
    measured = {"peer": peer, "seconds": seconds, "cpu_seconds": cpu_seconds, "peak_bytes": peak.bytes}
    if output is not None:
        begin = time.perf_counter()
        _sync(output)
        measured["synced_seconds"] = seconds + time.perf_counter() - begin
    return measured, result


def _sync(folder):
    for path in Path(folder).rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.close(file)


def report(measured):
    """Prints what was measured as a line of JSON."""
    print(json.dumps(measured), flush=True)

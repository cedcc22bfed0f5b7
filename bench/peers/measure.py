"""Time, processor time and memory of this process and all that it started."""

import contextlib
import itertools
import json
import os
import threading
import time
from pathlib import Path

_SAMPLE_SECONDS = 0.02
# To find the processes takes as long as some samples.
_SAMPLES_PER_LOOK = 50
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


class _Watch(threading.Thread):
    """Processor time and memory of the processes, those that come and go among them."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ticks, self.bytes, self.done = {}, 0, threading.Event()
        self.look()
        self.before = self.cpu_seconds()

    def look(self):
        """Finds out which processes there are, and what each has used until now."""
        self.tree = _tree()
        for pid in self.tree:
            with contextlib.suppress(OSError):
                self.ticks[pid] = sum(map(int, _stat(pid)[11:13]))

    def cpu_seconds(self):
        """User and system, of processes that have ended as last seen."""
        return sum(self.ticks.values()) / _TICK

    def run(self):
        """Samples the memory that no file backs: of the processes, and what they share."""
        for sample in itertools.count(1):
            if self.done.wait(_SAMPLE_SECONDS):
                return
            if sample % _SAMPLES_PER_LOOK == 0:
                self.look()
            own = sum(_field(f"/proc/{pid}/status", "RssAnon:") for pid in self.tree)
            self.bytes = max(self.bytes, own + _shared() - _shared_before)

    def end(self):
        """Processor seconds and the most bytes since this was made."""
        self.done.set()
        self.join()
        self.look()
        return self.cpu_seconds() - self.before, self.bytes


def keep_freed_memory():
    """Makes processes that are started from now on keep what they free, for their next task."""
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(1 << 30)
    os.environ["MALLOC_TRIM_THRESHOLD_"] = str(1 << 40)


def run(peer, act, output=None):
    """Runs `act` and measures what it takes. To start what runs already is not measured. Where it writes files to the folder
    `output`, `synced_seconds` is the time until they are on the disk too. Returns that, to be reported when the result is
    validated, and the result."""
    watch = _Watch()
    watch.start()
    begin = time.perf_counter()
    result = act()
    seconds = time.perf_counter() - begin
    cpu_seconds, peak_bytes = watch.end()
    measured = {"peer": peer, "seconds": seconds, "cpu_seconds": cpu_seconds, "peak_bytes": peak_bytes}
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

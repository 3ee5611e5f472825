"""What the system says of this process and those below it. Needs Linux."""

import os
from pathlib import Path


def status(field):
    """Bytes of a field of /proc/self/status, such as "VmRSS", "VmHWM" (its peak) or "RssAnon"."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def restart_peak():
    """VmHWM counts anew from here."""
    Path("/proc/self/clear_refs").write_text("5")


def children(pid=None):
    """Numbers of the processes below one, this one by default, and of those below them."""
    found = []
    for task in Path(f"/proc/{pid or os.getpid()}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *children(child)]
    return found


def is_running(pid):
    """Whether the process is there, and no zombie that nobody has collected."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def descriptors():
    """How many descriptors this process holds."""
    return len(os.listdir("/proc/self/fd"))


def lowest_free_descriptor():
    """The number that the next opened file gets. Those held may have higher numbers, which whoever started us chose."""
    descriptor = os.open("/dev/null", os.O_RDONLY)
    os.close(descriptor)
    return descriptor

"""A disk that is full, without filling one."""

import resource
from contextlib import contextmanager


@contextmanager
def full_disk():
    """Yield a function `fill(size)`: from its call on the system refuses to let any file grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

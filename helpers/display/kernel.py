"""The notebook kernel that runs this process, and the messages of widgets that wait in it while a cell runs.

A kernel handles one message after the other. So a click on a button waits until the running cell has ended, unless the
cell lets the kernel handle it. ipykernel has no public function for that: the names used here are those of ipykernel
6.17 (Colab) and 7.4. In between, JupyterLab sends the messages to a thread of their own, and none wait here.
"""

import os
import sys
from collections.abc import Collection, Sequence

from helpers.runtime import interrupts_held


def in_kernel() -> bool:
    """Tell whether a notebook kernel runs this, rather than a process that merely imported one."""
    return _kernel() is not None


def is_watched() -> bool:
    """Tell whether somebody may be looking: in a kernel, and not headless (HELPERS_HEADLESS)."""
    return in_kernel() and not os.environ.get("HELPERS_HEADLESS")


def handle_messages(comm_ids: Collection[str]) -> None:
    """Handle the waiting messages of these comms, in the main thread. All others keep waiting, in their order.

    comm_ids: `widget.model_id` of each widget that may be clicked or changed. Raises AttributeError in a kernel that is
    built otherwise; no message is lost by it.
    """
    kernel = _kernel()
    with interrupts_held():  # an interrupt between taking a message and putting it back would lose it
        if getattr(kernel, "shell_channel_thread", None):
            _handle_in_socket(kernel, comm_ids)
        else:
            _handle_in_queue(kernel, comm_ids)


def _kernel():
    """Return the kernel that runs this process; None where there is none."""
    ipython = sys.modules.get("IPython")
    return getattr(ipython and ipython.get_ipython(), "kernel", None)


def _handle_in_queue(kernel, comm_ids: Collection[str]) -> None:
    """ipykernel 6: messages wait in a queue of calls, each with a number, a function and its arguments."""
    import zmq

    queue = kernel.msg_queue
    kernel.shell_stream.flush(zmq.POLLIN)  # what has arrived enters the queue
    for _ in range(queue.qsize()):
        call = queue.get_nowait()
        _, function, arguments = call
        is_message = function == kernel.dispatch_shell
        if not (is_message and _handle_if_of(comm_ids, arguments[0], kernel)):
            queue.put_nowait(call)


def _handle_in_socket(kernel, comm_ids: Collection[str]) -> None:
    """ipykernel 7: messages wait in a socket between two threads, from which a stream calls a function for each."""
    import zmq

    pair = kernel.shell_channel_thread.manager.get_shell_channel_to_subshell_pair(None)
    dispatch = pair.to_stream._recv_callback
    while pair.to_socket.poll(0):
        frames = pair.to_socket.recv_multipart(zmq.NOBLOCK, copy=False)
        if not _handle_if_of(comm_ids, frames, kernel):
            kernel.io_loop.add_callback(dispatch, frames)  # called when the cell has ended


def _handle_if_of(comm_ids: Collection[str], frames: Sequence, kernel) -> bool:
    """Handle a message if it is of one of these comms. False: it is another, and nothing was done."""
    session = kernel.session
    try:
        identities, parts = session.feed_identities(frames, copy=False)
        glance = session.deserialize(list(parts), content=False, copy=False)
        if glance["header"]["msg_type"] != "comm_msg" or session.unpack(glance["content"])["comm_id"] not in comm_ids:
            return False
        message = session.deserialize(parts, copy=False)
    except Exception:  # no message, or a broken one: the kernel knows what to do with it
        return False
    _handle(message, identities, kernel)
    return True


def _handle(message: dict, identities: Sequence[bytes], kernel) -> None:
    """Call the widget's functions as the kernel would, and tell the frontend that it may send the next message."""
    cell = kernel.get_parent("shell")
    cell_identities = kernel._parent_ident["shell"]
    _flush_prints()  # what the cell has printed belongs to the cell
    kernel.set_parent(identities, message, "shell")
    kernel._publish_status("busy", "shell")
    try:
        kernel.comm_manager.comm_msg(None, identities, message)
    finally:
        _flush_prints()
        kernel._publish_status("idle", "shell")
        kernel.set_parent(cell_identities, cell, "shell")
        kernel._publish_status("busy", "shell")  # the cell goes on


def _flush_prints() -> None:
    sys.stdout.flush()
    sys.stderr.flush()

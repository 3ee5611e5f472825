"""A notebook kernel of any Python, driven as a frontend does: run cells, press buttons, move sliders."""

import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from jupyter_client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

#: Seconds that an answer may take on a busy machine.
PATIENCE = 60


class Frontend:
    """What a browser does with a kernel.

    Attributes:
        heard: all messages that the kernel published, in order.
    """

    def __init__(self, client: BlockingKernelClient, process: subprocess.Popen):
        self.client = client
        self.process = process
        self.heard = []

    def run(self, code: str) -> str:
        """Send a cell, and return the id of the message without waiting."""
        return self.client.execute(code)

    def send(self, widget: str, **data) -> str:
        """Send a widget what a browser would; return the id of the message."""
        message = self.client.session.msg("comm_msg", {"comm_id": widget, "data": data})
        self.client.shell_channel.send(message)
        return message["header"]["msg_id"]

    def click(self, button: str) -> str:
        return self.send(button, method="custom", content={"event": "click"})

    def change(self, widget: str, **state) -> str:
        return self.send(widget, method="update", state=state, buffer_paths=[])

    def wait_for(self, wanted, what: str):
        """Return the first message, of those heard already or to come, for which wanted(type, message) is true."""
        for message in self.heard:
            if wanted(message["msg_type"], message):
                return message
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            message = self.client.get_iopub_msg(timeout=PATIENCE)
            self.heard.append(message)
            if wanted(message["msg_type"], message):
                return message
        raise TimeoutError(f"waited in vain for {what}")

    def wait_until_done(self, message_id: str) -> None:
        """Wait until the kernel has handled a message."""

        def is_its_end(kind, message):
            is_idle = kind == "status" and message["content"]["execution_state"] == "idle"
            return is_idle and message["parent_header"].get("msg_id") == message_id

        self.wait_for(is_its_end, f"the end of {message_id}")

    def wait_for_widget(self, model: str) -> str:
        """Return the id of the first widget of that model that the kernel opens, such as "ButtonModel"."""

        def is_it(kind, message):
            return kind == "comm_open" and message["content"]["data"]["state"]["_model_name"] == model

        return self.wait_for(is_it, model)["content"]["comm_id"]

    def wait_for_state(self, widget: str, test, what: str) -> dict:
        """Return the first state that a widget tells the browser for which test(state) is true."""

        def is_it(kind, message):
            content = message["content"]
            is_of_widget = kind == "comm_msg" and content["comm_id"] == widget
            return is_of_widget and test(content["data"].get("state", {}))

        return self.wait_for(is_it, what)["content"]["data"]["state"]

    def printed(self, message_id: str) -> str:
        """What a cell has printed so far, and the text of an error that ended it."""
        texts = []
        for message in self.heard:
            if message["parent_header"].get("msg_id") == message_id:
                content = message["content"]
                texts.append(content.get("text") or content.get("ename") or "")
        return "".join(texts)

    def place(self, message: dict) -> int:
        return self.heard.index(message)


@contextmanager
def kernel_of(python: str, **environment):
    """Start a kernel of a Python, and yield its `Frontend`."""
    with tempfile.TemporaryDirectory() as folder:
        file, _ = write_connection_file(str(Path(folder) / "kernel.json"))
        command = [python, "-m", "ipykernel_launcher", "-f", file]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        client = BlockingKernelClient(connection_file=file)
        client.load_connection_file()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=PATIENCE)
            yield Frontend(client, process)
        finally:
            client.stop_channels()
            process.kill()
            process.wait()

"""JupyterLab in a headless browser, driven as a reader does."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from playwright.sync_api import Error, Locator, Page, expect, sync_playwright

#: Names of installed browsers that playwright can drive; CHROMIUM in the environment comes first.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Milliseconds that the page may take for what is no measurement.
PATIENCE = 240_000
#: Settings of JupyterLab: all cells are in the page, wherever one has scrolled to, and nothing is asked of the network.
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


@contextmanager
def running_lab(folder: Path) -> Iterator[str]:
    """Start JupyterLab on a folder of notebooks; yield its address. Its own files go into `folder/.lab`."""
    own = folder / ".lab"
    for name, setting in SETTINGS.items():
        path = own / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(setting))
    environment = {name: value for name, value in os.environ.items() if name != "HELPERS_HEADLESS"}
    environment |= {
        "JUPYTER_CONFIG_DIR": str(own / "config"),
        "JUPYTER_RUNTIME_DIR": str(own / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(own / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(own / "workspaces"),
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--no-browser", "--allow-root", f"--port={port}", f"--ServerApp.root_dir={folder}"]
    options += ["--IdentityProvider.token=", "--ServerApp.port_retries=0"]
    with open(own / "log", "w") as log:
        command = [sys.executable, "-m", "jupyter", "lab", *options]
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(f"{address}/api", server, own / "log")
            yield address
        finally:
            server.terminate()
            server.wait(timeout=60)


def _wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE / 1000
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urlopen(address, timeout=1).close()
            return
        except (URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


@contextmanager
def running_browser():
    """Start a headless browser; yield it."""
    installed = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        try:
            # as root, in a container, Chromium has no sandbox; the page is our own
            browser = playwright.chromium.launch(executable_path=installed, args=["--no-sandbox"])
        except Error as error:
            raise RuntimeError(
                f"No browser could be started ({installed or 'none was found'}): install Chromium, or run "
                f"{sys.executable} -m playwright install chromium."
            ) from error
        yield browser
        browser.close()


class OpenNotebook:
    """A notebook in a tab.

    Attributes:
        errors: what the browser's console reported as an error, but for pictures of other sites, such as a badge.
    """

    def __init__(self, page: Page, address: str, name: str):
        self.page = page
        self.address = address
        self.errors = []
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note)
        page.goto(f"{address}/lab/tree/{name}.ipynb?reset")
        self.cells = page.locator(".jp-Notebook .jp-Cell")
        self.cells.first.wait_for()
        page.locator(".jp-NotebookPanel-toolbar .jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()

    def _note(self, message) -> None:
        place = message.location.get("url") or self.address
        if message.type == "error" and place.startswith(self.address):
            self.errors.append(f"{message.text} ({place})")

    def cell(self, place: int) -> Locator:
        return self.cells.nth(place)

    def output(self, place: int) -> Locator:
        """What a cell has shown."""
        return self.cell(place).locator(".jp-Cell-outputArea")

    def run(self, place: int) -> None:
        """Run one cell of code, without waiting for its end."""
        prompt = self.cell(place).locator(".jp-InputPrompt")
        before = prompt.inner_text()
        prompt.click()
        for _ in range(10):  # JupyterLab takes no key until it has read its shortcuts, which it shows nowhere
            self.page.keyboard.press("Control+Enter")
            try:
                expect(prompt).not_to_have_text(before, timeout=2000)
                return
            except AssertionError:
                pass
        raise AssertionError(f"cell {place} does not run")

    def run_to_end(self, places: Iterable[int]) -> None:
        """Run cells one after the other, and wait for the end of each. Text is left out."""
        for place in places:
            if "jp-CodeCell" in self.cell(place).get_attribute("class"):
                self.run(place)
                self.wait_until_done(place)

    def wait_until_done(self, place: int) -> None:
        """Wait until a cell has ended, which gives it a number. Fail if it ended in an error or wrote to stderr."""
        expect(self.cell(place).locator(".jp-InputPrompt")).to_have_text(re.compile(r"\[\d+\]"), timeout=PATIENCE)
        bad = self.cell(place).locator("[data-mime-type*='jupyter.error'], [data-mime-type*='jupyter.stderr']")
        texts = bad.all_inner_texts()
        assert not texts, f"cell {place} says {texts[0]}"


@contextmanager
def opened(browser, address: str, name: str) -> Iterator[OpenNotebook]:
    """Open a notebook in a tab of its own."""
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    try:
        yield OpenNotebook(page, address, name)
    finally:
        page.close()

"""A process that has the large packages imported, and forks a child for each notebook: `run_warm` starts it.

Booting a Jupyter kernel and importing torch takes longer than most notebooks need to reach a planted fault. A child of
this process has the packages already, and runs the notebook with nbval's collector and with ipykernel's kernel for one
process. So the code of ipykernel gathers what a cell shows, and the code of nbval compares it with what is stored.

Two things differ from `run_nbval`: what a subprocess of a cell writes to its terminal is not part of the cell's output,
and a cell has no time limit. The process never imports `helpers`, so every child imports the copy above its notebook.
"""

import gc
import json
import logging
import os
import sys
import threading
import traceback
from importlib import import_module
from pathlib import Path

import nbval.plugin
import pytest
from ipykernel.inprocess.manager import InProcessKernelManager
from nbval.kernel import RunningKernel

#: Packages that the notebooks and `helpers` import and that take long. Importing them must not start a thread.
PACKAGES = (
    "accelerate",
    "datasets",
    "ipykernel.inprocess.ipkernel",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "peft",
    "scipy.stats",
    "torch._dynamo",
    "torch._inductor",
    "torch.nn.attention.flex_attention",
    "transformers.masking_utils",
    "transformers.models.gpt_oss.modeling_gpt_oss",
    "triton.language",
)
#: As `run_nbval` has them. Without -s, pytest would take what the cells print.
OPTIONS = ["-x", "-q", "-rf", "-s", "--color=no", "--disable-plugin-autoload", "-p", "no:cacheprovider"]
#: Exit status of a child in which not the notebook failed but what runs it.
BROKEN = 70


class KernelInThisProcess(RunningKernel):
    """nbval's handle of a kernel, for a kernel that runs the cells in this process."""

    def __init__(self):
        self.km = InProcessKernelManager()
        self.km.start_kernel()
        self.kc = self.km.client()
        self.kc.start_channels()
        sys.stdout = self.km.kernel.stdout
        sys.stderr = self.km.kernel.stderr

    def stop(self):
        sys.stdout = sys.__stdout__
        sys.stderr = sys.__stderr__
        self.kc.stop_channels()
        self.km.shutdown_kernel()
        del self.km


class NotebookInThisProcess(nbval.plugin.IPyNbFile):
    """nbval's collector of the cells of a notebook, with the settings of --nbval-lax."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compare_outputs = False  # of cells that have no tag

    def setup(self):
        self.kernel = KernelInThisProcess()
        self.setup_sanitize_files()


class NotebookCollector:
    """A plugin of pytest that collects notebooks."""

    def pytest_collect_file(self, file_path, parent):
        return NotebookInThisProcess.from_parent(parent, path=file_path)


def run_notebook(notebook):
    """Run a notebook in this process; return pytest's exit status."""
    os.chdir(notebook.parent)
    sys.path.insert(0, "")  # a kernel imports from its folder
    options = [*OPTIONS, "--rootdir", str(notebook.parent), "-c", os.devnull, str(notebook)]
    return int(pytest.main(options, plugins=[nbval.plugin, NotebookCollector()]))


def redirect(log):
    """Give this process an empty standard input, and a file for what it prints."""
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def run_in_child(notebook, log):
    """Run a notebook in a child, which prints to the file `log`; return the child's exit status."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    status = BROKEN
    try:
        redirect(log)
        status = run_notebook(notebook)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.__stdout__.flush()
        sys.__stderr__.flush()
        os._exit(status)  # nbval kills a kernel, too: nothing registered with atexit is run


def serve():
    """Read lines such as {"notebook": path, "log": path}, and answer each by a line with the exit status."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)  # as `helpers` does before the import
    for package in PACKAGES:
        import_module(package)
    assert "helpers" not in sys.modules, "children would not import the copy above their notebook"
    threads = os.listdir("/proc/self/task")
    assert threading.active_count() == len(threads) == 1, "a fork does not copy threads, but the locks that they hold"
    gc.freeze()  # what is here is never garbage: a collection in a child need not look at it
    for line in sys.stdin:
        request = json.loads(line)
        status = run_in_child(Path(request["notebook"]), request["log"])
        print(status, flush=True)


if __name__ == "__main__":
    serve()

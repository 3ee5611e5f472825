"""A hub of data sets on this machine: as much of its API as `dataset_info` and `load_dataset` ask for."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

#: Where the only file of each commit lies.
FILE = "data/train.jsonl"
_FOLDER = {"type": "directory", "oid": hashlib.sha1(b"data").hexdigest(), "size": 0, "path": "data"}


class LocalHub:
    """A data set with commits. Each has one file of JSON lines.

    name: "owner/name". commits: the hash of each -> the content of its file; the last one is the newest. sent: the
    commits whose file was sent, one after the other.
    """

    def __init__(self, name: str):
        self.name = name
        self.commits: dict[str, bytes] = {}
        self.sent: list[str] = []
        self.address = ""

    def commit(self, rows: list[dict]) -> str:
        """Add a commit with these rows, and return its hash."""
        revision = hashlib.sha1(f"commit {len(self.commits)}".encode()).hexdigest()
        self.put(revision, rows)
        return revision

    def put(self, revision: str, rows: list[dict]) -> None:
        """Let the file of a commit have these rows."""
        self.commits[revision] = "".join(json.dumps(row) + "\n" for row in rows).encode()

    def newest(self) -> str:
        return list(self.commits)[-1]

    def answer_api(self, path: str) -> object:
        """Return the answer to a path of the API as what JSON has; None where there is no such thing.

        path: what follows the name of the data set.
        """
        _, kind, revision, *folder = f"{path}///".split("/")
        revision = revision or self.newest()
        if revision not in self.commits:
            return None
        if kind == "tree":
            return self._tree(revision, folder[0])
        return {"id": self.name, "sha": revision, "siblings": [{"rfilename": FILE}], "private": False, "tags": []}

    def _tree(self, revision: str, folder: str) -> list[dict]:
        content = self.commits[revision]
        file = {"type": "file", "oid": _blob_id(content), "size": len(content), "path": FILE}
        return [file] if folder else [_FOLDER]


def _blob_id(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextmanager
def local_hub(name: str) -> Iterator[LocalHub]:
    """Serve a hub with one data set, which has no commits yet, at the `address` of the hub."""
    hub = LocalHub(name)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.hub = hub
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        hub = self.server.hub
        path = urlsplit(self.path).path
        api = f"/api/datasets/{hub.name}"
        files = f"/datasets/{hub.name}/resolve/"
        if path.startswith(api):
            answer = hub.answer_api(path.removeprefix(api))
            if answer is not None:
                return self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})
        if path.startswith(files):
            revision, _, file = path.removeprefix(files).partition("/")
            if revision in hub.commits and file == FILE:
                return self._send_file(revision)
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": revision})
        return self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET

    def _send_file(self, revision: str) -> None:
        hub = self.server.hub
        content = hub.commits[revision]
        if self.command == "GET":
            hub.sent.append(revision)
        self._send(200, content, {"ETag": f'"{_blob_id(content)}"', "X-Repo-Commit": revision})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *args):
        """Print nothing: the tests read what is printed."""

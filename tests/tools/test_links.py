"""The list of external links: complete, with titles, and nothing else in it. `make links` asks the pages themselves."""

import json
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.tools import links
from tests.tools.links import Answer, ask_all, links_of, links_of_project, read_list, wrong_pages
from tests.tools.release import address

PAPER = "https://arxiv.org/abs/1706.03762"


def test_every_link_is_in_the_list_with_a_title():
    """A link that nobody has looked at may lead anywhere."""
    assert links.missing_links(links_of_project(), read_list()) == []


def test_every_link_of_the_list_is_on_a_page():
    assert links.unused_links(links_of_project(), read_list()) == []


def test_the_list_is_sorted():
    """Two people who add a link each do not meet in one line."""
    titles = read_list()
    assert list(titles) == sorted(titles)


@pytest.mark.parametrize(
    "text",
    [
        "[the paper](https://arxiv.org/abs/1706.03762)",
        "<https://arxiv.org/abs/1706.03762>, and more",
        'an <a href="https://arxiv.org/abs/1706.03762">anchor</a>',
        "(see https://arxiv.org/abs/1706.03762).",
        "**https://arxiv.org/abs/1706.03762**",
    ],
)
def test_a_link_ends_where_it_ends(text):
    assert links_of(text) == [PAPER]


def test_links_to_the_project_itself_are_left_out():
    """They change with each release, and `make release` writes them."""
    repo, _ = address()
    badge = f"https://colab.research.google.com/github/{repo}/blob/v1.2.3/notebooks/x.ipynb"
    picture = "https://colab.research.google.com/assets/colab-badge.svg"
    text = f"[![Open in Colab]({picture})]({badge}) git clone https://github.com/{repo} and {PAPER}"
    assert links_of(text) == [PAPER]


def test_code_cells_are_not_read(tmp_path):
    """A package index in a command is nothing to read."""
    cells = [
        {"cell_type": "markdown", "source": ["see ", PAPER]},
        {"cell_type": "code", "source": ["url = 'https://example.com'"]},
    ]
    page = tmp_path / "x.ipynb"
    page.write_text(json.dumps({"cells": cells}))
    assert links_of(links.text_of(page)) == [PAPER]


def test_what_the_list_lacks_and_what_it_has_too_much_is_said():
    found = {"https://a.example": "README.md", "https://b.example": "README.md"}
    titles = {"https://b.example": "", "https://c.example": "C"}
    missing = links.missing_links(found, titles)
    unused = links.unused_links(found, titles)
    assert [sentence.split()[2] for sentence in missing] == ["https://a.example", "https://b.example"]
    assert unused == ["links.json: remove https://c.example, which is on no page."]


PAGES = {
    "/right": "<html><head><title>\n [1] Sinks &amp; Windows\n</title></head></html>",
    "/other": "<title>Another page</title>",
    "/none": "<p>no title</p>",
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        page = PAGES.get(self.path)
        self.send_response(200 if page else 404)
        self.end_headers()
        self.wfile.write((page or "").encode())

    def log_message(self, *arguments):
        """Keep the output of the tests free of requests."""


@pytest.fixture
def server():
    """The address of a server with `PAGES`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_pages_are_asked_for_their_titles(server):
    titles = {server + path: "Sinks & Windows" for path in ("/right", "/other", "/none", "/gone")}
    answers = ask_all(titles)
    assert answers[0] == Answer(200, "[1] Sinks & Windows")
    first, second, third = wrong_pages(titles, answers)
    assert "'Sinks & Windows', and the page says 'Another page'" in first
    assert "the page says ''" in second
    assert third == f"{server}/gone: the server answers with status 404."


def test_without_a_network_only_the_list_is_checked(monkeypatch, capsys):
    """Whoever works in a train is not told that every page is gone."""
    monkeypatch.setattr(links, "ask", lambda link: None)
    status = links.main()
    printed = capsys.readouterr().out
    assert "there is no network, so only the list was checked" in printed and "no server answers" not in printed
    assert status == (0 if "nothing to fix" in printed else 1)


def test_one_page_that_does_not_answer_is_named(server):
    titles = {f"{server}/right": "Sinks", "http://127.0.0.1:9/": "a closed port"}
    assert wrong_pages(titles, ask_all(titles)) == ["http://127.0.0.1:9/: no server answers."]

"""Check the external links of pages and notebooks: `python -m tests.tools.links` (`make links`).

links.json holds every link with the title of its page. Where there is a network each page is asked for its title.
"""

import html
import json
import re
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from helpers.runtime import ROOT
from tests.tools.release import address

LIST = Path(__file__).with_name("links.json")
#: A link. A blank, a quote, a bracket or a star ends it: a parenthesis in an address must be written as %28 or %29.
LINK = re.compile(r"""https?://[^\s()<>\[\]"'`*\\]+""")
COLAB = "https://colab.research.google.com/"
#: A page gets so many seconds, and its title must stand in so many bytes.
SECONDS = 15
LONGEST = 1_000_000


@dataclass(frozen=True)
class Answer:
    """What a server says of a page: the status of HTTP, and the page's title."""

    status: int
    title: str


def pages() -> list[Path]:
    """Return the files whose links are checked."""
    rooms = sorted((ROOT / "helpers").rglob("README.md"))
    found = sorted((ROOT / "notebooks").rglob("*.ipynb"))
    notebooks = [path for path in found if "/." not in str(path.relative_to(ROOT))]  # none of .ipynb_checkpoints
    return [ROOT / "README.md", *rooms, ROOT / "tests" / "README.md", *notebooks]


def text_of(page: Path) -> str:
    """Return what a page says: all of a README, and the markdown cells of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def links_of(text: str) -> list[str]:
    """Return the external links in a text, in their order, but for links to the project itself."""
    links = [link.rstrip(".,;:!?") for link in LINK.findall(text)]
    return [link for link in links if not is_own(link)]


def is_own(link: str) -> bool:
    """Tell whether a link belongs to the project: Colab's badges, and its own address."""
    repo, _ = address()
    return link.startswith(COLAB) or repo in link


def links_of_project() -> dict[str, str]:
    """Return {link: the first page that has it}, as a path from the project's folder."""
    found = {}
    for page in pages():
        for link in links_of(text_of(page)):
            found.setdefault(link, str(page.relative_to(ROOT)))
    return found


def read_list() -> dict[str, str]:
    """Return {link: title of its page} from links.json."""
    return json.loads(LIST.read_text(encoding="utf-8"))


def missing_links(found: Mapping[str, str], titles: Mapping[str, str]) -> list[str]:
    """Return a sentence for each link of a page that links.json lacks, or has without a title."""
    missing = [link for link in found if not titles.get(link)]
    return [f"{found[link]}: add {link} to links.json, with the title of its page." for link in missing]


def unused_links(found: Mapping[str, str], titles: Mapping[str, str]) -> list[str]:
    """Return a sentence for each link of links.json that is on no page."""
    return [f"links.json: remove {link}, which is on no page." for link in titles if link not in found]


def title_of(page: str) -> str:
    """Return the title of an HTML page on one line; "" where it has none."""
    found = re.search(r"<title[^>]*>(.*?)</title>", page, re.IGNORECASE | re.DOTALL)
    return " ".join(html.unescape(found[1]).split()) if found else ""


def ask(link: str) -> Answer | None:
    """Ask a server for a page. Return None where no server answers."""
    request = Request(link, headers={"User-Agent": "Mozilla/5.0 (a check of links)"})
    try:
        with urlopen(request, timeout=SECONDS) as response:
            page = response.read(LONGEST).decode("utf-8", "replace")
            return Answer(response.status, title_of(page))
    except HTTPError as error:
        return Answer(error.code, "")
    except (OSError, HTTPException):
        return None


def ask_all(links: Iterable[str]) -> list[Answer | None]:
    """Ask for several pages at once. Return one answer a link, in their order."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(ask, links))


def wrong_pages(titles: Mapping[str, str], answers: Iterable[Answer | None]) -> list[str]:
    """Return a sentence for each page that is not there or has another title. answers: one for each of `titles`."""
    sentences = []
    for (link, title), answer in zip(titles.items(), answers):
        if answer is None:
            sentences.append(f"{link}: no server answers.")
        elif answer.status != 200:
            sentences.append(f"{link}: the server answers with status {answer.status}.")
        elif title.casefold() not in answer.title.casefold():
            sentences.append(f"{link}: links.json says '{title}', and the page says '{answer.title}'.")
    return sentences


def main() -> int:
    """Print what is wrong. Return the exit status: 1 if anything is."""
    found = links_of_project()
    titles = read_list()
    sentences = missing_links(found, titles) + unused_links(found, titles)
    answers = ask_all(titles)
    if any(answers):
        checked = "the list and the pages were checked"
        sentences += wrong_pages(titles, answers)
    else:
        checked = "there is no network, so only the list was checked"
    print(*sentences, f"{len(found)} links; {checked}: {len(sentences) or 'nothing'} to fix.", sep="\n")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())

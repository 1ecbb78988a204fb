"""Every tutorial is typed as it stands: its files are written into an empty folder, its commands
are run one after the other, and what the page shows of their output is what they print.

A command that would ask a model at an endpoint or a person is not run, and what takes a minute
is trained by `tests/learning`.
"""

import re
from pathlib import Path

import pytest

from tests.command_line import gem_ma
from tests.documents import PAGES, Page

TUTORIALS = [page for page in PAGES if str(page).startswith("docs/tutorials/")]
# on the line, or in the config that it names; Kuhn's self-play takes a minute
ELSEWHERE = re.compile(r"openai/|retail_user_llm|=human|new model|train referential$|kuhn_table")


def commands(page: Page) -> list[tuple[str, ...]]:
    typed = [
        line
        for line in page.commands()
        if "--offline" in line.words or not ELSEWHERE.search(line.text)
    ]
    return [line.words for line in typed if line.words[0] == "gem-ma"]


def shown(page: Page) -> list[str]:
    """The lines of the blocks without a language: what commands print."""
    return [line.strip() for _, kind, text in page.fenced if not kind for line in text.splitlines()]


def plain(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.long
@pytest.mark.parametrize("page", TUTORIALS, ids=str)
def test_a_tutorial_does_what_it_says(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "my games (1)"  # people do
    folder.mkdir()
    for name, text in page.files():
        (folder / name).write_text(text, encoding="utf-8")
    printed = []
    # from an empty file to a study: whoever types it all is refused nothing on the way
    assert len(commands(page)) <= 15
    for _, *words in commands(page):
        quiet = ["--quiet"] if words[0] in ("run", "train", "study") else []
        done = gem_ma(*words, *quiet, cwd=folder)
        assert done.returncode == 0, (words, done.stderr)
        printed += [plain(line) for line in done.stdout.splitlines()]
    assert printed
    assert [line for line in map(plain, shown(page)) if line not in printed] == []


def test_every_page_is_in_the_menu_and_two_clicks_from_home() -> None:
    import yaml

    from tests.documents import ROOT

    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    pages = {page.path.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]}
    assert set(re.findall(r"[\w/]+\.md", str(menu))) == pages
    links = {str(page): re.findall(r"\]\(([\w/]+\.md)", page.text) for page in PAGES}
    asked = next(page for page in PAGES if str(page) == "docs/how_to.md")
    assert "how_to.md" in links["docs/index.md"]
    rows = re.findall(r"^\| .*\? \|.*$", asked.text, re.MULTILINE)
    assert len(rows) >= 21 and all(".md" in row for row in rows)

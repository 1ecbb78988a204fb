"""Takes the pictures of the documents with Chromium: plays what they show, opens the pages, and
writes docs/pictures/*.png. Some two minutes of one core.

    python .ci/pictures.py

The curve of the real model is taken where `make model-curves` has been run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import Browser  # noqa: E402  (found after the line above)

PICTURES = ROOT / "docs" / "pictures"
MODEL = ROOT / "runs" / "curves"
RUN = ("run", "retail_scripted", "-n", "50", "agents.assistant=retail_transfers_early")
SAID = ("Hello, I want to exchange a fountain pen.", "odile.hollins3458@example.com")
TRAIN = ("train", "referential_table")
RETAIL = ("run", "retail_scripted", "-n", "50")
GATHERED = {
    "transfers-late": RETAIL,
    "transfers-early": (*RETAIL, "agents.assistant=retail_transfers_early"),
    **{f"seed-{seed}": (*TRAIN, f"run.seed={seed}") for seed in range(3)},
    "league": ("train", "kuhn_league", "train.steps=60", "evaluate.every=10"),
}
STUDY = """
scenario: {id: retail, tasks: 30}
grid:
  agents.assistant:
    by the book: retail_scripted
    transfers early: retail_transfers_early
    forgets to confirm: retail_forgets_to_confirm
  agents.user:
    faithful: {behaviour: retail_user, options: {preset: faithful}}
    forgetful: {behaviour: retail_user, options: {preset: forgetful}}
    uncooperative: {behaviour: retail_user, options: {preset: uncooperative}}
"""


def played(folder: Path, *words: str) -> Path:
    """The page of a run that is played now."""
    command = [sys.executable, "-m", "gem_ma", *words, "--out", str(folder), "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder.parent)
    return folder / "report.html"


@contextmanager
def viewer(folder: Path) -> Iterator[str]:
    """The address of a viewer, on a free port."""
    command = [sys.executable, "-m", "gem_ma", "view", folder.name]  # the page shows this name
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder.parent) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def tokens(browser: Browser, address: str) -> None:
    browser.visit(address + "run/curves")
    browser.until("!!document.querySelector('.lanes')")
    browser.run("document.querySelectorAll('.tokens').forEach((one) => { one.open = true; })")
    browser.until("document.querySelectorAll('.sampled').length === 2")
    browser.run("document.querySelector('#viewer').scrollIntoView({behavior: 'instant'})")
    browser.picture(PICTURES / "tokens.png")


def own_play(browser: Browser, address: str) -> None:
    """A customer who is played by hand: two answers."""
    browser.visit(address + "play?scenario=retail&agent=user")
    browser.until("!!document.querySelector('#cast input')")
    browser.run("document.querySelector('#seed').value = '3'")
    browser.run("document.querySelector('#begin').requestSubmit()")
    for words in SAID:
        browser.until("document.activeElement?.localName === 'textarea'")
        acts = browser.run("document.querySelectorAll('#talk .act').length")
        browser.type(words)
        browser.press("Enter")
        browser.until(f"document.querySelectorAll('#talk .act').length > {acts}")
    browser.until("document.querySelector('#told').textContent === 'your turn'")
    browser.picture(PICTURES / "play.png")


def gathered(browser: Browser, folder: Path) -> None:
    """The list of runs, a run, runs compared, curves of three seeds, a study, a league."""
    runs = folder / "gathered"
    runs.mkdir()
    (folder / "study.yaml").write_text(STUDY, "utf-8")
    for name, words in GATHERED.items():
        played(runs / name, *words)
    command = [sys.executable, "-m", "gem_ma", "study", "study.yaml"]
    subprocess.run(
        [*command, "--out", str(runs / "study"), "--quiet"],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=folder,
    )
    seeds = "&".join(f"run=seed-{seed}" for seed in range(3))
    pages = {
        "runs": "",
        "run": "run/transfers-early",
        "compare": "compare?run=transfers-late&run=transfers-early",
        "curves": f"curves?{seeds}&y=policies/listener/decision_entropy&smooth=0.5",
        "study": "study/study#part-0",
        "league": "league/league",
    }
    with viewer(runs) as address:
        for name, page in pages.items():
            browser.visit(address + page)
            browser.picture(PICTURES / f"{name}.png")


def real_model(browser: Browser) -> None:
    """The curve of two seeds of SmolLM2, without the page around it."""
    with viewer(MODEL) as address:
        browser.visit(
            address + "curves?run=guess_number-0&run=guess_number-1&y=success&seeds=apart"
        )
        browser.run(
            "document.querySelector('main').replaceChildren(document.querySelector('figure'));"
            "document.querySelectorAll('header, details').forEach((one) => one.remove());"
            "document.body.style.padding = '8px 24px'"
        )
        browser.size(860, 440)
        browser.picture(PICTURES / "smollm2.png")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as place, Browser(Path(place, "profile")) as browser:
        talks = played(Path(place, "talks"), *RUN)
        curves = played(Path(place, "curves"), *TRAIN)
        browser.size(1200, 860)
        browser.open(talks, "#/r/0/e/1")
        browser.picture(PICTURES / "lanes.png")
        browser.open(curves)
        # the page scrolls smoothly: at once, or the picture shows the way there
        browser.run("document.querySelector('h3').scrollIntoView({behavior: 'instant'})")
        browser.picture(PICTURES / "training.png")
        with viewer(Path(place)) as address:
            tokens(browser, address)
            own_play(browser, address)
        gathered(browser, Path(place))
        if MODEL.is_dir():
            real_model(browser)
    print("\n".join(str(path.relative_to(ROOT)) for path in sorted(PICTURES.glob("*.png"))))


if __name__ == "__main__":
    main()

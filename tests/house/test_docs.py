"""README.md and docs/ are true: every command runs or is read by its own parser, configs load,
Python runs, what is named is there.

A placeholder (RUN, CONFIG, FOLDER, seed S ...) is filled in. Plays and trainings on tables run
with small numbers; other trainings are checked as `gem-ma train` checks them before it begins. A
block of a config that is a fragment must fit into one of the shipped configs.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from inspect import cleandoc, signature
from pathlib import Path
from typing import Any

import pytest
import yaml

import gem_ma
from gem_ma.cli.main import group, main
from gem_ma.cli.seats import seated
from gem_ma.config.loading import load, load_study
from gem_ma.kernel.errors import ConfigError, DataError, GemMaError
from tests.documents import PAGES, ROOT, Page, Words, leads
from tests.typed import need, verify_other

CONFIGS = ROOT / "configs"
# the commands of a tutorial need those before them: tests/house/test_tutorials.py
SINGLE = [page for page in PAGES if not str(page).startswith("docs/tutorials/")]
SMALL_PLAY = ("-n", "2", "run.baselines=false", "--quiet")
SMALL_TRAINING = ("train.steps=1", "evaluate.episodes=4", "run.baselines=false", "--quiet")


class World:
    """What the placeholders stand for, and where commands write."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs, self.seen = folder, folder / "runs", set[tuple[str, ...]]()
        lost = [
            "agents.assistant.behaviour=retail_nothing",
            "scenario.tasks=2",
            "run.baselines=false",
        ]
        self.call(["run", "retail_scripted", *lost, "--quiet", "--out", str(self.runs / "NAME")])
        self.call(
            [
                "train",
                "guess_number_table",
                *SMALL_TRAINING,
                "train.episodes=8",
                "--out",
                str(self.runs / "trained"),
            ]
        )
        from gem_ma.scenarios.service_desk.retail.__main__ import main as shop

        shop(
            ["write", str(folder / "shop"), "--form", "tau1", "--tasks", "2"], standalone_mode=False
        )
        self.shop, *_ = sorted(path.parent for path in (folder / "shop").rglob("users.json"))
        (tasks,) = self.shop.glob("tasks_test.*")
        for split in ("dev", "train"):
            (self.shop / f"tasks_{split}{tasks.suffix}").write_bytes(tasks.read_bytes())

    def call(self, words: list[str]) -> None:
        """Runs a command in this process; raises Untrue where it does not end well."""
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
            code = main(words)
        need(code == 0, f"exit code {code}: {said.getvalue().strip()[-300:]}")

    def filled(self, words: Words) -> list[str]:
        """The words with something in place of each placeholder; what would be written lies in
        the folder of the test."""
        names = {
            "CONFIG": "configs/retail_scripted.yaml",
            "FILE": "configs/retail_matrix.yaml",
            "X": "kuhn_poker",
            "NAME": "kuhn_table",
        }
        names |= {
            "RUN": str(self.runs / "NAME"),
            "FOLDER": str(self.shop),
            "CHECKOUT": str(self.shop),
            "PATH": str(self.folder / "model"),
        }
        letters = {"S": "3", "N": "20", "E": "rebn", "C": "1", "K": "[agent, k]", "G": "0.9"}
        filled = []
        for word in words:
            if word.endswith(("=...", "=[...]")):
                continue
            word = names.get(
                word,
                re.sub(r"(?<![\w.-])([SNECKG])(?![\w-])", lambda letter: letters[letter[1]], word),
            )
            word = re.sub(r"^runs/", f"{self.runs}/", word)
            filled.append(str(self.folder / word) if (self.folder / word).is_file() else word)
        return filled


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    patch = pytest.MonkeyPatch()
    patch.chdir(ROOT)
    made = World(tmp_path_factory.mktemp("docs"))
    patch.setenv("OPENAI_API_KEY", "no-key-is-ever-used-here")
    yield made
    patch.undo()


# -- commands ------------------------------------------------------------------------------------


def verify(words: list[str], world: World) -> None:
    """Raises Untrue, or what a parser raises, where this command line cannot be typed."""
    head, rest = words[0], words[1:]
    if head == "gem-ma":
        if rest:
            verify_own(rest, world)
    else:
        verify_other(head, rest)


def verify_own(words: list[str], world: World) -> None:
    """A line of `gem-ma`, without that word."""
    command: Any = group
    while hasattr(command, "commands") or command is group:
        name = words[0]
        command, words = command.get_command(None, name), words[1:]
        need(command is not None, f"no command {name}")
        if not words:
            return  # the command is named, not typed
    wants = [
        parameter
        for parameter in command.params
        if parameter.param_type_name == "argument" and parameter.required
    ]
    if (
        all(word.startswith("-") for word in words[:1])
        and wants
        and not any("=" in word or "/" in word for word in words)
    ):
        options = {text for parameter in command.params for text in parameter.opts}
        need(
            {word for word in words if word.startswith("-")} <= options,
            f"options of {name}: {sorted(options)}",
        )
        return
    params = command.make_context(name, list(words)).params
    {"run": played, "train": trained, "study": compared, "check": checked, "resume": resumed}.get(
        name, called
    )(name, words, params, world)


def called(name: str, words: list[str], params: dict[str, Any], world: World) -> None:
    if name in ("list", "show"):
        # not the runs that whoever tests has played here
        under = ["--root", str(world.runs)] if words[:1] in (["runs"], ["studies"]) else []
        world.call([name, *words, *under])


def without(words: list[str], *keys: str) -> list[str]:
    """The words without the overrides that a smaller one replaces."""
    return [word for word in words if word.partition("=")[0] not in keys]


def played(name: str, words: list[str], params: dict[str, Any], world: World) -> None:
    loaded = load(*seated(params["source"], params["overrides"]))
    if not any(
        str(model.model).startswith(("human/", "openai/", "transformers/"))
        for model in loaded.config.policies.values()
    ):
        world.call(
            [
                name,
                *without(words, "scenario.tasks", "run.baselines"),
                *SMALL_PLAY,
                "--out",
                str(world.folder / f"play-{len(list(world.folder.iterdir()))}"),
            ]
        )


def trained(name: str, words: list[str], params: dict[str, Any], world: World) -> None:
    """On tables with one step; of other models all that is refused before anything is played."""
    from gem_ma.runs.plans import try_seats
    from gem_ma.runs.worlds import worlds_of
    from gem_ma.training.schedule import checks

    loaded = load(params["source"], params["overrides"], configs_first=True)
    need(loaded.config.train is not None, "nothing would learn")
    worlds = worlds_of(loaded.config, base=loaded.base)
    for played in worlds.examined:
        try_seats(played.config, played.scenario)
    checks.checked(loaded.config, loaded.config.policies, worlds)
    tables = all(
        str(policy.model).startswith("table/") for policy in loaded.config.policies.values()
    )
    quick = (
        tables
        and not loaded.config.train.warm_start
        and not loaded.config.train.fork
        and params["processes"] == 1
        and params["ray"] is None
    )
    key = tuple(word for word in words if "train.steps=" not in word and "run.seed" not in word)
    if quick and key not in world.seen:
        world.seen.add(key)
        out = params["out"] or str(world.folder / f"training-{len(world.seen)}")
        world.call(
            [
                name,
                *without(words, *(word.partition("=")[0] for word in SMALL_TRAINING)),
                *SMALL_TRAINING,
                f"train.episodes={max(8, loaded.config.train.group_size)}",
                "--out",
                out,
            ]
        )


def compared(name: str, words: list[str], params: dict[str, Any], world: World) -> None:
    load_study(params["source"], params["overrides"])


def checked(name: str, words: list[str], params: dict[str, Any], world: World) -> None:
    loaded = load(*seated(params["source"], params["overrides"]))
    single = loaded.config.scenario
    own = single is not None and single.id.startswith(str(world.folder))
    if params["examine"] or own:
        world.call([name, *words, *(["-n", "1"] if params["examine"] else []), "--quiet"])


def resumed(name: str, words: list[str], params: dict[str, Any], world: World) -> None:
    if params["processes"] == 1:
        of_training = (
            [str(world.runs / "trained"), *words[1:]]
            if any(word.startswith("train.") for word in words)
            else words
        )
        world.call(
            [
                name,
                *(re.sub(r"train.steps=\d+", "train.steps=2", word) for word in of_training),
                "--quiet",
            ]
        )


@pytest.mark.long
@pytest.mark.parametrize("page", SINGLE, ids=str)
def test_every_command_can_be_typed(page: Page, world: World) -> None:
    for name, text in page.files():
        (world.folder / name).write_text(text, encoding="utf-8")
    faults = []
    for line in page.commands():
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.delenv("TAU_BENCH_PATH", raising=False)  # the reader's may be set
                if "TAU_BENCH_PATH" in line.text or "retail_tau1" in line.text:
                    patch.setenv("TAU_BENCH_PATH", str(world.shop))
                verify(world.filled(line.words), world)
        except Exception as error:
            faults.append(
                f"{page}:{line.number}: {line.text}\n    {type(error).__name__}:"
                f" {getattr(error, 'message', error)}"
            )
    assert not faults, "\n" + "\n".join(faults)


# -- configs, Python, names ----------------------------------------------------------------------


def taken(path: Path, *overrides: str) -> None:
    """Raises GemMaError where scenario, seats or adapters do not take what the config says."""
    from gem_ma.engines.models.settings import lora_settings
    from gem_ma.runs.plans import try_seats
    from gem_ma.runs.worlds import worlds_of

    config = load(path, overrides).config
    for world in worlds_of(config).examined:
        try_seats(world.config, world.scenario)
    for name, policy in config.policies.items():
        if isinstance(policy.options.get("lora"), dict):
            lora_settings(policy.options["lora"], name)


def fits(fragment: dict[str, Any], folder: Path) -> str:
    """ "" where one of the shipped configs takes the fragment; else what the one with the fewest
    faults says."""
    faults = []
    for path in sorted(CONFIGS.glob("*.yaml")):
        whole = yaml.safe_load(path.read_text(encoding="utf-8"))
        if "grid" in whole or "grid" in fragment:
            continue
        filled = folder / "filled.yaml"
        merged = {
            **whole,
            **{key: {**(whole.get(key) or {}), **value} for key, value in fragment.items()},
        }
        filled.write_text(yaml.safe_dump(merged), encoding="utf-8")
        try:
            taken(filled)
            return ""
        except GemMaError as error:
            faults.append(str(error))
    return min(faults, key=len)


@pytest.mark.parametrize("page", SINGLE, ids=str)
def test_every_yaml_block_is_a_config_or_fits_into_one(page: Page, tmp_path: Path) -> None:
    for path in CONFIGS.glob("*.yaml"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for number, text in page.blocks("yaml"):
        said = yaml.safe_load(text)
        whole = tmp_path / "block.yaml"
        whole.write_text(text, encoding="utf-8")
        if "grid" in said:
            load_study(whole)
        elif "scenario" in said:
            taken(whole)
        else:
            assert not (fault := fits(said, tmp_path)), f"{page}:{number}: {fault}"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_python_block_runs(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.chdir(tmp_path)  # they write runs
    names: dict[str, object] = {
        "__name__": "documents",
        **{name: getattr(gem_ma, name) for name in ("Ask", "Reward", "Scenario", "Tell")},
    }
    for number, text in page.blocks("python"):
        exec(compile("\n" * number + text, str(page), "exec"), names)  # our own text, not a model's


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_override_fits_a_shipped_config(page: Page) -> None:
    unfit = [
        f"{page}:{number}: {override}"
        for number, override in page.overrides()
        if not fits_somewhere(override)
    ]
    assert not unfit, "\n".join(unfit)


@pytest.mark.long
def test_what_alarms_advise_can_be_typed() -> None:
    from gem_ma.training.selfplay.collapse import ADVICE

    cures = [(signal, advice) for signal, several in ADVICE.items() for advice in several]
    for signal, advice in cures:
        typed = re.findall(
            r"""'[a-zA-Z._]+=[^']+'|"[a-zA-Z._]+=[^"]+"|(?:train|policies)\.[\w.{}]+=[\w.\[\]{}]*\w\]?""",
            advice.format(policy="NAME"),
        )
        assert ("=" in advice) == bool(typed) and all(map(fits_somewhere, typed)), (signal, typed)


def fits_somewhere(typed: str) -> bool:
    """Whether one of the shipped configs takes these overrides."""
    for path in sorted(CONFIGS.glob("*.yaml"), key=lambda path: path.stem != "retail_scripted"):
        try:
            named = typed.replace("FILE.py:NAME", "random_legal").replace("NAME", "speaker")
            taken(path, *shlex.split(named))
            return True
        except (ConfigError, DataError):
            continue
    return False


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_what_is_named_is_there(page: Page) -> None:
    missing = [
        f"{page}:{number}: {name}" for number, name in page.paths() if not any(ROOT.glob(name))
    ]
    assert not missing, "\n".join(missing)
    broken = [
        f"{page}:{number}: {target}" for number, target in page.links() if not leads(page, target)
    ]
    assert not broken, "\n".join(broken)


def test_every_page_is_two_clicks_from_the_index() -> None:
    docs = ROOT / "docs"
    reached = {docs / "index.md"}
    for _ in range(2):
        links = {
            (page.parent / link).resolve()
            for page in reached
            for link in re.findall(r"\]\(([^)#:]+\.md)[^)]*\)", page.read_text("utf-8"))
        }
        reached |= {page for page in links if page.is_relative_to(docs)}
    assert {*docs.rglob("*.md")} <= reached


@pytest.mark.parametrize("name", sorted({*gem_ma._PUBLIC} - {"Play"}))  # which is an alias
def test_every_public_name_can_be_read_about_without_a_tool(name: str) -> None:
    """docs/reference/api.md as GitHub shows it."""
    item = getattr(gem_ma, name)
    page = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
    is_class = isinstance(item, type)
    heading = f"\n## class `{name}`\n" if is_class else f"\n## `{name}()`\n"
    text = page.partition(heading)[2].partition("\n## ")[0]
    assert cleandoc(item.__doc__ or "").splitlines()[0] in text
    # of an Enum and an exception the constructor is Python's
    parameters = {} if is_class and name in ("End", "ConfigError") else signature(item).parameters
    assert all(f"{each}: " in text for each in parameters)

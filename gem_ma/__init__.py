"""gem_ma: a multi-agent gym for language-model agents, in which any subset of the agents learns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

if __name__ != "gem_ma":  # the checkout on __path__ would otherwise offer gem_ma.gem_ma
    raise ImportError(f"import this package as gem_ma, not {__name__}")
# in a checkout scenarios/, agents/ and configs/ lie beside the package, in a wheel inside of it
_checkout = Path(__file__).resolve().parents[1]
if (_checkout / "pyproject.toml").is_file() and (_checkout / "scenarios" / "__init__.py").is_file():
    __path__.append(str(_checkout))

__version__ = "0.1.0"

# what a user types; tests/test_layers.py reads it too, to know which room a name comes from
_PUBLIC = {
    **dict.fromkeys(
        ("Ask", "Call", "Game", "Leave", "Reward", "Scenario", "Tell", "replay"),
        "gem_ma.kernel.scenario",
    ),
    **dict.fromkeys(
        ("Action", "Asked", "Image", "Malformed", "Message", "Reply", "Request", "Sampling"),
        "gem_ma.kernel.types",
    ),
    **dict.fromkeys(("Tool", "ToolCall", "Turn"), "gem_ma.kernel.types"),
    **dict.fromkeys(("End", "Entry", "Episode", "Limits", "Seat"), "gem_ma.kernel.episode"),
    **dict.fromkeys(("Play",), "gem_ma.kernel.scenario"),
    **dict.fromkeys(("talk",), "gem_ma.kernel.talk"),
    **dict.fromkeys(("ConfigError",), "gem_ma.kernel.errors"),
    **dict.fromkeys(("dealt", "list_scenarios", "make", "task_of"), "gem_ma.registry"),
    **dict.fromkeys(("aec_env",), "gem_ma.envs.aec"),
    **dict.fromkeys(("parallel_env",), "gem_ma.envs.parallel"),
    **dict.fromkeys(("gym_env",), "gem_ma.envs.gym"),
    **dict.fromkeys(("discrete",), "gem_ma.envs.discrete"),
    **dict.fromkeys(("make_vec",), "gem_ma.envs.vector"),
    **dict.fromkeys(("Plan", "play"), "gem_ma.driver.rollout"),
    **dict.fromkeys(("play_many",), "gem_ma.driver.rollout"),
    **dict.fromkeys(("read_episodes",), "gem_ma.runs.store.lines"),
    **dict.fromkeys(("check_scenario",), "gem_ma.testing"),
    **dict.fromkeys(
        (
            "compare",
            "load_config",
            "open_policies",
            "open_run",
            "run",
            "study",
            "to_frame",
            "train",
        ),
        "gem_ma.api",
    ),
    **dict.fromkeys(("Run",), "gem_ma.runs.run"),
}
# older names of modules, and where they lie; what a package holds follows it
_MOVED = {
    **{
        name: f"gem_ma.{room}.{name}"
        for room, names in {
            "kernel": "effects episode errors parsing scenario spelling types",
            "record": "choices codec shapes",
            "system": "env_file files folders used",
            "driver": "behaviour limits rollout seats",
            "credit": "estimators",
            "training": "tracking",
        }.items()
        for name in names.split()
    },
    "effect_values": "gem_ma.kernel.effects",
    "json_text": "gem_ma.kernel.parsing.strict_json",
    "calling": "gem_ma.driver.limits",
    "memory": "gem_ma.driver.seats",
    "exchange": "gem_ma.kernel.views",
    "transcript": "gem_ma.kernel.views",
    "sampling": "gem_ma.kernel.types",
    "decimals": "gem_ma.kernel.spelling",
    "digests": "gem_ma.system.files",
    "import_folders": "gem_ma.system.import_folders",
    "png": "gem_ma.kernel.types",
    "admission": "gem_ma.driver.rollout",
    "hearing": "gem_ma.driver.seats",
    "together": "gem_ma.driver.seats",
    "policy_faults": "gem_ma.driver.limits",
    "script": "gem_ma.kernel.scenario",
    "frozen": "gem_ma.kernel.types",
    "lanes": "gem_ma.kernel.notebook",
    "conversations": "gem_ma.record.token_chains",
    "pictures": "gem_ma.record.shapes",
    "installing": "gem_ma.system.extras",
    "options": "gem_ma.system.options",
    "crew": "gem_ma.driver.rollout",
    "branches": "gem_ma.driver.forks",
    "turn_table": "gem_ma.credit.table",
    "observed": "gem_ma.credit.table",
    "evaluation": "gem_ma.scores",
    "attribution": "gem_ma.scores.attribution",
    "store": "gem_ma.runs.store",
    "exporting": "gem_ma.runs.export",
    "running": "gem_ma.runs",
    "config.plans": "gem_ma.runs.plans",
    "config.worlds": "gem_ma.runs.worlds",
    "entrance": "gem_ma.api",
    "view": "gem_ma.pages.static",
    "viewer": "gem_ma.pages.live",
    "adapters": "gem_ma.worlds",
    "gym_like": "gem_ma.envs.gem_api",
    "gymnasium_ids": "gem_ma.envs.gymnasium_ids",
    "integrations": "gem_ma.trainers",
    "engines.http": "gem_ma.engines.api",
    "scenarios.retail": "gem_ma.scenarios.service_desk.retail",
    "scenarios.service": "gem_ma.scenarios.service_desk",
    # modules that lie in a room now
    **{
        f"{room}.{name}": f"gem_ma.{home}.{name}"
        for room, home, names in (
            (
                "engines.api",
                "engines.endpoint",
                "client endpoint envelope faults remote reply sentences stream streamed_calls",
            ),
            (
                "engines.local",
                "engines.models",
                "adapter_folder answers chat chat_template loading model_folder settings sight"
                " vocabulary",
            ),
            (
                "scenarios.retail",
                "scenarios.service_desk.retail.store",
                "fixed schemas source specs store tasks tau2 tau2_calls"
                " tau2_source tau2_tools tools",
            ),
            (
                "scenarios.retail",
                "scenarios.service_desk.retail.domain",
                "cues domain grading kinds language named naming"
                " naming_addresses naming_items naming_swaps products reasons"
                " telling texts",
            ),
            (
                "scenarios.retail",
                "scenarios.service_desk.retail.shop",
                "describe forge intents knobs prove questions refusals render"
                " requests scene shop situation_sentences situations words world",
            ),
            (
                "scenarios.retail",
                "scenarios.service_desk.retail.benchmark",
                "sources tau2_data tau2_grading tau2_view taubench",
            ),
            (
                "agents",
                "scenarios.service_desk.agents",
                "customer customer_answers customer_phrases customer_traits"
                " customer_voice customer_wishes retail_answers retail_baselines"
                " retail_choice retail_counter retail_details retail_items"
                " retail_moves retail_oracle retail_reading retail_scripted"
                " retail_talk retail_user retail_user_llm retail_weaker traits"
                " user_ledger user_llm",
            ),
        )
        for name in names.split()
    },
    # modules that are part of another one now
    **{
        f"{room}.{name}": f"gem_ma.{home}"
        for room, home, names in (
            ("adapters", "worlds.pettingzoo", "boards"),
            ("cli", "cli.stopping", "exits"),
            ("cli", "cli.trained", "baselines"),
            ("config", "config.check", "fit fit_keys fit_scenario fit_training"),
            ("config", "config.schema", "secrets"),
            ("config", "config.seats", "seating worlds_written"),
            ("config", "config.settings", "json_schema studies"),
            ("config", "config.sources", "paths"),
            ("config", "config.training", "opponents"),
            ("config", "runs.plans", "casts"),
            ("config", "runs.worlds", "shares"),
            ("config", "system.options", "options"),
            ("driver", "driver.limits", "calling"),
            ("driver", "driver.rollout", "many"),
            ("driver", "driver.seats", "memory"),
            ("engines", "engines.base", "opening"),
            ("engines", "engines.endpoint.endpoint", "budget hiding"),
            ("engines.endpoint", "engines.endpoint.endpoint", "budget hiding"),
            ("engines.api", "engines.endpoint.remote", "tries"),
            ("engines.local", "engines.local.adapters", "adapter_routing"),
            ("engines.local", "engines.models.chat", "rendering"),
            ("engines.local", "engines.local.sampling", "constrained"),
            ("engines.local", "engines.local.transformers", "vision"),
            ("engines.local", "engines.models.settings", "adapter_settings"),
            ("engines.local", "engines.models.sight", "images"),
            ("engines.local", "engines.local.tiny", "tiny_tokenizer tiny_vision"),
            ("engines.vllm", "engines.vllm.backend", "probing"),
            ("estimators", "credit.estimators.moving", "shaping"),
            ("evaluation", "scores.columns", "costs tallies"),
            ("evaluation", "scores.exploitability", "game_tree listed_chance"),
            ("evaluation", "scores.groups", "copies kinds lost"),
            ("evaluation", "scores.stats", "student_t"),
            ("evaluation", "scores.judge", "verdicts"),
            ("evaluation", "scores.stats", "repeated"),
            ("evaluation", "scores.studies", "pairs"),
            ("evaluation", "training.selfplay.averaging", "mixture"),
            ("kernel", "kernel.effects", "effect_values"),
            ("kernel", "kernel.types", "fast_dataclass"),
            ("pages.static", "pages.static.figures", "svg"),
            ("parsing", "kernel.parsing.formats", "gemma_calls glm_calls named_calls"),
            ("parsing", "kernel.parsing.text", "boxed"),
            ("credit", "credit", "ledger"),
            ("credit.estimators", "credit.estimators", "registry"),
            ("credit.estimators", "credit.estimators.returns", "trees"),
            ("record", "kernel.parsing.strict_json", "json_text"),
            ("running", "runs.open", "folder"),
            ("scores", "scores.rows", "summary_rows"),
            ("scores", "scores.stats", "intervals"),
            ("testing", "testing.fresh", "travel"),
            ("tools", "tools.mcp", "connection"),
            ("tools", "tools.search", "dense"),
            ("tools", "tools.walls", "syscalls"),
            ("view", "pages.live.leagues", "league"),
            ("view", "pages.live.overlays", "overlay plot_files"),
            ("view", "pages.static.figures", "curves marks"),
            ("view", "pages.static.folder", "chosen"),
            ("view", "pages.static.notes", "beside"),
            ("view", "pages.static.scores", "details lost"),
            ("view", "pages.static.study", "study_facts study_plots"),
            ("viewer", "pages.live.plays", "forms sitting"),
            ("trainers", "trainers.course", "outside"),
            ("training", "training.train", "entry"),
            ("training.learner", "training.loop.roles", "capabilities"),
            ("training.learner", "training.learner.losses", "pairs sampled slopes"),
            ("viewer", "pages.live.run", "index tokens"),
            ("viewer", "pages.live.site", "listing"),
        )
        for name in names.split()
    },
}
_MODULES = ("adapters", "gym_like", "worlds")
__all__ = list(_PUBLIC)


class _Moved:
    """Imports a module by its older name: the same object, not a second copy."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        loader: Any = self  # it takes no abstract class: `importlib.abc` costs 20 ms
        if (new := self._new_name(name)) == name:
            return None
        found = find_spec(new)
        is_package = found is not None and found.submodule_search_locations is not None
        return ModuleSpec(name, loader, is_package=is_package)

    def get_code(self, name: str) -> Any:
        """What `python -m` runs."""
        loader: Any = getattr(find_spec(self._new_name(name)), "loader", None)
        return loader.get_code(self._new_name(name))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._new_name(spec.name))
        spec.loader_state = module.__spec__  # the machinery of imports writes over it
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state

    def _new_name(self, name: str) -> str:
        if not name.startswith("gem_ma."):
            return name
        inner = name.removeprefix("gem_ma.")
        for old in (inner, ".".join(inner.split(".")[:2]), inner.split(".")[0]):
            if old in _MOVED:
                return _MOVED[old] + inner.removeprefix(old)
        return name


# first, or a submodule of an older name would be loaded again from the new folder
sys.meta_path.insert(0, _Moved())


# lazy, so that `import gem_ma` loads neither pettingzoo nor numpy
def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name in _MODULES or name in _MOVED:
        return import_module(f"gem_ma.{name}")
    raise AttributeError(f"module 'gem_ma' has no attribute {name!r}")


def __dir__() -> list[str]:
    # what is imported here for its own needs is left out; modules of ours are not
    ours = (getattr(value, "__name__", "").startswith("gem_ma.") for value in globals().values())
    named = [
        name for name, own in zip(globals(), ours, strict=True) if own or name.startswith("__")
    ]
    return sorted({*__all__, *_MODULES, *named})


# last: Gymnasium's registry names modules of ours
import_module("gem_ma.envs.gymnasium_ids").register_when_there()

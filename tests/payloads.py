"""Sixty texts that would run, load or hide something if a page took them for more than text; an
episode, and a run folder, that hold each of them wherever somebody else has a say: a model, a user,
a config, data, a name of a folder or of a number."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.types import Action, Image, Malformed, Message, Reply, Tool, ToolCall, Turn
from gem_ma.runs.store import RunFolder
from gem_ma.scores.judge import Judge
from gem_ma.scores.studies import Cell, study_summary
from gem_ma.training.loop.checkpoint import write_checkpoint
from tests.plays import recorded

PAYLOADS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "--><svg onload=alert(1)>",
    "<img src=x onerror=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "<iframe src=http://127.0.0.1:9/x></iframe>",
    "<link rel=stylesheet href=http://127.0.0.1:9/x>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<base href=http://127.0.0.1:9/>",
    "<style>@import 'http://127.0.0.1:9/x'</style>",
    "<a href='javascript:alert(1)'>x</a>",
    "<details open ontoggle=alert(1)>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\u2028alert(1)\u2029",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "]]><script>alert(1)</script>",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
    "`-alert(1)-`",
    "<math><mtext></p><script>alert(1)</script>",
    "<svg><script>alert&#40;1)</script>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "__proto__",
    "constructor",
    "\u202etxt.exe\u202c",
    "\x00\x1b[31mred\x07",
    "<body onload=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<video src=x onerror=alert(1)></video>",
    "<audio src=http://127.0.0.1:9/x autoplay>",
    "<object data=http://127.0.0.1:9/x></object>",
    "<embed src=http://127.0.0.1:9/x>",
    "<form action=http://127.0.0.1:9/><button>x",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<svg><use href='data:image/svg+xml,<svg onload=alert(1)>'/></svg>",
    "<img srcset=http://127.0.0.1:9/x>",
    "<a href=http://127.0.0.1:9/ ping=http://127.0.0.1:9/>x</a>",
    "<template><script>alert(1)</script></template>",
    "<xmp><p title='</xmp><img src=x onerror=alert(1)>'>",
    "<div style=background:url(http://127.0.0.1:9/x)>",
    "<script/src=data:,alert(1)></script>",
    "<![CDATA[<script>alert(1)</script>",
    "<?xml version='1.0'?><script>alert(1)</script>",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:msgbox(1)",
    "//127.0.0.1:9/x",
    "http://127.0.0.1:9/x",
    "../../../../etc/passwd",
    "%2e%2e%2f%3Cscript%3Ealert(1)%3C/script%3E",
    "&#x3c;script&#x3e;alert(1)&#x3c;/script&#x3e;",
    "\ufeff<script>alert(1)</script>",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
    "}});alert(1);//",
    "*/alert(1)/*",
    '\\";alert(1);//',
    "toString",
    "hasOwnProperty",
    "\u2066txt\u2069\u200b",
)


def held(payload: str, field: str) -> str:
    """A payload as it stands in a field, so that a page shows which fields it shows whole. The
    payload leads: some do harm only at the beginning of a text."""
    return f"{payload} @{field}"


# of an episode; what its page shows whole, wherever it is looked at
SHOWN = (
    *("task", "scenario", "behaviour", "policy", "error", "why", "cause", "cause name"),
    *("label", "label name", "measure", "sender", "message", "digest", "result of", "result"),
    *("tool", "argument", "reason", "unreadable", "said", "legal", "finish", "draft", "own"),
    *("draft tool", "last"),
)


def hostile(payload: str) -> Episode:
    """A payload in every field that a model, a user, a config, data or a scenario's author fills:
    bare where it is a key, else as `held`."""
    p = payload
    f = {name: held(p, name) for name in (*SHOWN, "call", "media", "group", "option", "seat")}
    calls = (
        ToolCall(f["call"], f["tool"], {p: f["argument"], "deep": {p: [p]}}),
        Malformed(f["unreadable"], f["reason"]),
    )
    observed = (
        Message((f["message"], Image(f["digest"], f["media"]), _PICTURE), f["sender"], calls, p),
        Message(f["own"], p),
        Message.tool(f["result of"], f["result"]),
    )
    replies = (
        Reply(f["draft"], (ToolCall("c", f["draft tool"], {}),), finish=f["finish"], policy=p),
        Reply(f["said"], calls, policy=f["policy"]),
    )
    act = Action(f["said"], calls, None)
    # it calls what is not offered, so its move is illegal, and a page lists the legal ones
    turn = Turn(0, p, observed, (f["legal"],), (Tool(f["draft tool"], p),), act, replies)
    seats = {p: Seat(f["behaviour"], f["policy"], {f["seat"]: p}), "other": Seat(p)}
    return recorded(
        seats,
        (turn,),
        (Entry(0, p, 1.0, f["why"]),),
        scenario=f["scenario"],
        task=f["task"],
        group=f["group"],
        final={p: (Message(f["last"], p),), "other": (Message.system(p),)},
        end=End.FAILED,
        error=f["error"],
        options={p: f["option"]},
    )


# a drawing that would be a document, were it shown as one
_PICTURE = Image("1" * 64, "image/svg+xml", b"<svg onload=alert(1)>")
JUDGE = Judge(
    success=lambda episode: False,
    labels=lambda episode: {
        "cause": held(_payload(episode), "cause"),
        held(_payload(episode), "cause name"): held(_payload(episode), "cause"),
        held(_payload(episode), "label name"): (held(_payload(episode), "label"), "x"),
    },
)


def _payload(episode: Episode) -> str:
    return next(iter(episode.cast))


def folder_name(payload: str) -> str:
    """A payload as a folder may be called: no slash, no NUL, not hidden."""
    return "r " + payload.replace("/", "|").replace("\x00", "")


def hostile_run(path: Path, episodes: bool = True) -> Path:
    """A run folder that holds all payloads: plays, config, manifest, summary, numbers over time."""
    played = [hostile(p) for p in PAYLOADS] if episodes else []
    with RunFolder.open(
        path, config_text=PAYLOADS[0], resolved=_resolved(), manifest={"command": "run"}
    ) as folder:
        folder.append(played)
        for step in range(3):
            folder.log({"step": step, **{held(p, "number"): step for p in PAYLOADS}})
            folder.log({"kind": "alarm", "step": step, "policy": PAYLOADS[1], "alarm": PAYLOADS[0]})
    every = {held(p, "version"): held(p, "number of it") for p in PAYLOADS}
    facts = {
        "created": PAYLOADS[0],
        "overrides": [held(p, "override") for p in PAYLOADS],
        "versions": every,
        "git": {"commit": PAYLOADS[4], "dirty": True},
        "data": {"name": held(PAYLOADS[4], "data"), "folder": PAYLOADS[1], "digest": PAYLOADS[0]},
        "seeds": {held(p, "seed"): 1 for p in PAYLOADS},
        "scenario": {"id": held(PAYLOADS[4], "scenario"), "version": PAYLOADS[5]},
    }
    _write(path / "manifest.json", {**json.loads((path / "manifest.json").read_text()), **facts})
    if played:
        more = {held(p, "unknown key"): held(p, "its value") for p in PAYLOADS}
        summary = JUDGE.summarise(played)
        # of a play that failed nothing is measured; a stranger's file may say that it was
        for row in summary["lost"]["episodes"]:
            row["measures"] = {row["task"].replace("@task", "@measure"): 1.0}
        _write(path / "summary.json", {"schema": 1, **summary, **more})
        # as of an older version: beside an index no summary by another hand is believed
        (path / "index.jsonl").unlink()
    return path


def compared_runs(root: Path) -> list[str]:
    """Two run folders whose plays came out otherwise, with a payload in every task, agent and
    setting; gives their names."""
    names = [folder_name(PAYLOADS[n]) for n in (1, 5)]
    for name, won in zip(names, (True, False), strict=True):
        played = [
            replace(
                hostile(p),
                task=held(p, "task"),
                ledger=(Entry(0, p, float(won), "x"),),
                end=End.TERMINATED,
                error=None,
            )
            for p in PAYLOADS
        ]
        judge = Judge(lambda episode: sum(episode.returns().values()) > 0)
        changed = {held(p, "setting"): held(p, name[:4]) for p in PAYLOADS[:6]}
        resolved = {**_resolved(), "run": {**changed, "won": won}}
        with RunFolder.open(
            root / name, config_text="", resolved=resolved, manifest={"command": "run"}
        ) as folder:
            folder.append(played)
            folder.write_summary(judge.summarise(played))
            for step in range(3):
                folder.log({"step": step, **{held(p, "number"): step * won for p in PAYLOADS}})
    return names


def hostile_study(root: Path) -> str:
    """The folder of a study with a payload in every name of its two axes; gives its name."""
    first, second = PAYLOADS[::8], PAYLOADS[4::16]
    axes = {f"agents.{held(PAYLOADS[0], 'axis')}": first, held(PAYLOADS[5], "axis"): second}
    cells = {}
    for number, names in enumerate(product(first, second)):
        paid = {(f"test/{task}", task, 0): float((task + number) % 3) for task in range(4)}
        summary = {"ok": 4, "failed": 0, "excluded": 0, "episodes": 4, "turns": 1.0}
        judged = dict.fromkeys(("success", "pass_hat_k", "tasks"))
        estimate = {"mean": 0.1 * number, "low": 0.0, "high": 1.0, "n": 4, "method": "t"}
        judged |= {"returns": dict.fromkeys(PAYLOADS[:3], estimate), "measures": {}}
        named = {f"return {p}": paid for p in PAYLOADS[:3]}
        cells[names] = Cell({**summary, **judged}, named, run=names[0])
    made = study_summary(axes, cells, (first[0], second[0]), resamples=20)
    name = folder_name(PAYLOADS[0]) + " study"
    (root / name).mkdir(parents=True)
    whole = {"schema": 1, "name": held(PAYLOADS[4], "study"), "command": PAYLOADS[4], **made}
    _write(root / name / "study.json", whole)
    return name


def hostile_league(root: Path) -> str:
    """A training whose players have payloads as names; gives the name of its folder."""
    name = folder_name(PAYLOADS[2]) + " league"
    resolved = {**_resolved(), "train": {"opponents": {"latest": 1.0}}}
    players = [held(p, "player") for p in PAYLOADS]
    with RunFolder.open(
        root / name, config_text="", resolved=resolved, manifest={"command": "train"}
    ) as folder:
        folder.append([])
        for step in (1, 2):
            rated = {player: float(step * at) for at, player in enumerate(players)}
            folder.log({"kind": "league", "step": step, "ratings": rated, "members": 0})
    games = [[player, players[0], 1.0 + at, 0.0] for at, player in enumerate(players[1:])]
    league = {"members": [[p, 1, 2, "x"] for p in PAYLOADS], "games": games, "mixed": False}
    state = json.dumps({"league": league}).encode()
    write_checkpoint(root / name / "checkpoints", 2, {"trainer.json": state})
    return name


def _write(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value), encoding="utf-8")


def _resolved() -> dict[str, Any]:
    return {
        "scenario": {"id": held(PAYLOADS[4], "scenario"), **{p: p for p in PAYLOADS}},
        "agents": {
            held(p, "seat"): {"behaviour": held(p, "behaviour"), "options": {p: p}}
            for p in PAYLOADS
        },
        "policies": {held(p, "name of policy"): {"model": held(p, "model")} for p in PAYLOADS},
    }

"""A key that a server repeats stands in no file, no page and no output, however it is disguised;
and a key that is a word changes no answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from time import process_time
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_ma.cli.main import main
from gem_ma.config.loading import load
from gem_ma.config.schema import is_secret
from gem_ma.engines.endpoint.endpoint import HIDDEN, LEAST, Secret
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Tool
from tests.asking import ask, engine_at
from tests.fault_server import (
    EVENTS,
    HTML,
    Answer,
    FaultServer,
    events,
    raw,
    says,
    status,
)

KEY = "sk-Canary/7f3a+9bD41c"
MESSAGE = {"role": "assistant", "content": "cooperate"}


def escaped(text: str) -> str:
    """JSON of a text in which every letter is an escape."""
    return '"' + "".join(f"\\u{ord(char):04X}" for char in text) + '"'


def says_with(**message: Any) -> Answer:
    return says(choice={"message": MESSAGE | message})


def error(body: str, code: int = 500, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(code, body.encode(), headers=named)


def call(arguments: str, **more: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"tool_calls": [{"id": "c", "type": "function", "function": function} | more]}


SLASHED = KEY.replace("/", "\\/")
ANSWERS: dict[str, Answer] = {  # good replies that hold the key
    "text": says(f"my key is {KEY}."),
    "quoted text": says(f'{{"key":"{KEY}"}} Bearer {KEY},key={KEY};{KEY}'),
    "escaped text": raw(
        b'{"choices": [{"message": {"content": '
        + escaped(KEY).encode()
        + b'}, "finish_reason": "stop"}]}'
    ),
    "escaped slash": raw(f'{{"choices": [{{"message": {{"content": "{SLASHED}"}}}}]}}'.encode()),
    "JSON in text": says(json.dumps(json.dumps({"k": SLASHED, "l": f"\n{KEY}\t"}))),
    "percent": says(f"?a={quote(KEY, safe='')}&b=%22{quote(quote(KEY, safe=''), safe='')}%22"),
    "other letters beside it": says(f"密钥{KEY}密钥_{KEY}_"),
    "either case": says(KEY.lower() + " " + KEY.upper()),
    "reasoning": says_with(reasoning_content=f"I saw {KEY}"),
    "refusal": says_with(content=None, refusal=KEY),
    "parts": says_with(content=[{"type": "text", "text": KEY}]),
    "call id": says_with(**call("{}", id=KEY)),
    "call name": says_with(**call("{}", function={"name": KEY, "arguments": "{}"})),
    "call arguments": says_with(**call(json.dumps({KEY: [{"x": KEY}]}))),
    "escaped arguments": says_with(**call('{"x": ' + escaped(KEY) + "}")),
    "broken arguments": says_with(**call('{"x": ' + escaped(KEY))),
    "no call": says_with(tool_calls=[f"call {KEY}"]),
    "model": says("cooperate", model=KEY),
    "stream pieces": events(*KEY),
    "stream pieces of reasoning": events(*[{"reasoning": piece} for piece in KEY], "cooperate"),
    "stream pieces of a call": events(
        *[
            {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": piece}}]}
            for piece in f'"{KEY}"'
        ]
    ),
}
FAULTS: dict[str, Answer] = {  # faults that hold the key, before a good reply
    "error": status(500, f"key {KEY} is bad"),
    "escaped error": error(f'{{"error": {{"message": {escaped(KEY)}}}}}'),
    "error with a slash": error(f'{{"error": "{SLASHED}"}}'),
    "error without JSON": error(f"<p>{KEY}</p>"),
    "error code": error(json.dumps({"error": {"code": KEY, "type": KEY}})),
    "cut in the middle": error("x" * 184 + " " + KEY),
    "far behind": error("x " * 4090 + KEY + KEY),
    "header": error("{}", 503, retry_after="0", x_key=KEY),
    "reason phrase": Answer(500, b"", reason=f"no {KEY}"),
    "content type": raw(b"{}", f"text/{KEY}"),
    "encoding": Answer(body=b"{}", headers={"content-encoding": KEY}),
    "finish": says("cooperate", finish=KEY),
    "error in a choice": says("cooperate", choice={"error": {"code": 502, "message": KEY}}),
    "error in a stream": raw(
        f'data: {{"error": {{"message": {escaped(KEY)}}}}}\n\n'.encode(), EVENTS
    ),
    "broken JSON": raw(f'{{"key": "{KEY}", '.encode()),
    "page": raw(f"<p>{KEY}".encode(), HTML),
    "bad status line": Answer(reason=f"\x00{KEY}"),
    "bad header": Answer(headers={f"x {KEY}": "1"}),
}
LAST: dict[str, Answer] = {  # what ends a run
    "redirect": Answer(307, b"", headers={"location": f"http://127.0.0.1:9/{KEY}?k={KEY}"}),
    "escaped redirect": Answer(302, b"", headers={"location": f"/{quote(KEY, safe='')}"}),
    "refused key": error(f'{{"error": {{"message": {escaped(KEY)}}}}}', 401),
    "no model": status(404, f"model {KEY} not found"),
    "no quota": status(402, KEY),
    "refused request": status(422, KEY),
}


def traces(text: str) -> list[str]:
    """The key, in whatever case and escape, or a long beginning of it."""
    plain = text.lower()
    for char in set(KEY):
        code = f"{ord(char):02x}"
        for spelled in (f"\\u00{code}", f"%{code}", f"%25{code}", f"\\{char}"):
            plain = plain.replace(spelled.lower(), char.lower())
    return [one for one in (KEY.lower(), KEY[:12].lower()) if one in plain]


@pytest.mark.parametrize("name", [*ANSWERS, *FAULTS, *LAST])
def test_a_key_that_a_server_repeats_is_in_no_reply_and_no_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    script = [ANSWERS[name]] if name in ANSWERS else [(FAULTS | LAST)[name], says("cooperate")]
    with FaultServer(script) as server:
        try:
            got = ask(engine_at(server, api_key_env="MY_KEY"), tools=(Tool("f"),))
        except Exception as caught:
            assert name in LAST and traces(str(caught)) == []
            return
    assert name not in LAST and traces(repr(got)) == [] and bool(got.attempts) == (name in FAULTS)
    assert name not in ANSWERS or HIDDEN in repr(got)


@pytest.mark.longest
def test_all_disguises_in_one_run_leave_no_trace_in_files_pages_and_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", KEY)
    script = [*FAULTS.values(), *ANSWERS.values()]
    with FaultServer(
        lambda asked: script[asked.number] if asked.number < len(script) else says("cooperate")
    ) as server:
        Path("talk.yaml").write_text(CONFIG.format(url=server.url), encoding="utf-8")
        assert main(["run", "talk.yaml", "--out", "out", "retry.attempts=40"]) == 0
        assert len(server.asked) > len(script)
    for last in LAST.values():
        with FaultServer([last], port=server.port):
            main(["run", "talk.yaml", "--out", "end", "retry.attempts=2"])
            main(["show", "end"])
    main(["show", "out"])
    main(["check", "talk.yaml"])
    told = capsys.readouterr()
    assert "***" in told.out + told.err and traces(told.out + told.err) == []
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.name == "report.html" for file in files)
    assert [file for file in files if traces(file.read_text("utf-8", "replace"))] == []


CONFIG = """
scenario: {{id: dilemma, rounds: 2, tasks: 10}}
agents: {{player_0: {{policy: main}}, player_1: {{policy: main}}}}
policies: {{main: {{model: openai/m, base_url: "{url}", api_key_env: MY_KEY, max_tokens: 20}}}}
"""


# -- what is no key ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        "choices",
        "cooperate",
        "ollama",
        "lm-studio",
        "content",
        "finish_reason",
        "m",
        "EMPTY",
        "assistant",
        "sk-1234",
    ],
)
def test_a_key_that_is_a_word_changes_no_answer(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", key)
    message = MESSAGE | {"content": f"I say {key}", **call(json.dumps({"x": key}))}
    for answer in (says(choice={"message": message}), events(*f"I say {key}")):
        with FaultServer([answer]) as server:
            got = ask(engine_at(server, api_key_env="MY_KEY"))
        assert got.text == f"I say {key}"
        assert got.attempts == ()
        assert server.asked[0].headers["authorization"] == f"Bearer {key}"


@pytest.mark.long
@given(st.text("ab-_./%\\", min_size=LEAST, max_size=24), st.text(max_size=3), st.text(max_size=3))
def test_a_key_is_hidden_wherever_it_stands_and_a_short_one_nowhere(
    key: str, before: str, after: str
) -> None:
    secret = Secret(key)
    text = f"{before}{key}{after}"
    assert key not in secret.hide(text) and secret.hide("nothing") == "nothing"
    assert Secret(key[: LEAST - 1]).hide(text) == text


@pytest.mark.parametrize(
    "key, run",
    [
        *((KEY, run) for run in ("\\", "%25", KEY[:-1], f"{KEY[:8]}\\", "\\u0073")),
        ("a1b2c3d4e5f6g7h-", "a1b2c3d4e5f6g7h-"),  # whole keys, the last in front of a letter
    ],
)
def test_hiding_is_linear(key: str, run: str) -> None:
    secret = Secret(key)

    def cost(times: int) -> float:
        text, best = run * times + "x", float("inf")
        for _ in range(4):
            began = process_time()
            secret.hide(text)
            best = min(best, process_time() - began)
        return best

    size = 15_000 // len(run)  # four times as much is one window still
    # a busy machine may blur one look
    assert any(cost(4 * size) <= 9 * cost(size) + 0.01 for _ in range(3))


# -- configs -------------------------------------------------------------------------------------

NAMES = [
    "api_key",
    "apiKey",
    "APIKEY",
    "x-api-key",
    "Authorization",
    "token",
    "accessToken",
    "HF_TOKEN",
    "password",
    "bearer",
    "client_secret",
    "cookie",
]
WRITTEN = (
    "scenario: {id: dilemma, tasks: 2}\nagents: {player_0: {policy: main}, player_1: {policy:"
    " main}}\npolicies:\n"
)


def refused(tmp_path: Path, text: str, *overrides: str) -> str:
    (tmp_path / "c.yaml").write_text(WRITTEN + text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "c.yaml", overrides)
    return str(caught.value)


@pytest.mark.parametrize("name, key", [("api_key", "k1"), *((name, KEY) for name in NAMES)])
def test_a_secret_that_is_written_is_refused_in_one_line_with_the_way_out(
    tmp_path: Path, name: str, key: str
) -> None:
    assert is_secret(name)
    for nest in (
        "{name}: {key}",
        "extra_body: {{{name}: {key}}}",
        "extra_body: {{headers: [{{{name}: [Bearer {key}]}}]}}",
    ):
        told = refused(
            tmp_path,
            "  main: {model: openai/m, base_url: 'http://h/v1', "
            + nest.format(name=name, key=key)
            + "}\n",
        )
        lines = [line for line in told.splitlines() if "secret" in line]
        assert len(lines) == 1
        assert lines[0].startswith(f"{tmp_path}/c.yaml:4: policies.main")
        assert "env" in lines[0]
        assert key not in told


def test_secrets_are_refused_in_every_section_and_in_overrides_that_others_replace(
    tmp_path: Path,
) -> None:
    good = "  main: {model: table/softmax}\n"
    for override in (
        "policies.main.api_key=k1",
        "policies.main.extra_body.token=k1",
        "agents.player_0.options.auth_token=k1",
    ):
        told = refused(tmp_path, good, override, override.replace("=k1", "=none"))
        assert "secret" in told and "k1" not in told
    for value in ("sk-" + "a1" * 12, "Bearer " + "b2" * 12, "hf_" + "c3" * 12):
        told = refused(tmp_path, f"  main: {{model: openai/m, extra_body: {{user: '{value}'}}}}\n")
        assert "holds a key" in told and value not in told
        assert "c.yaml:4: this comment holds a key" in refused(
            tmp_path, f"  # once {value}\n" + good
        )


def test_a_key_of_the_environment_stands_nowhere_in_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    main_ = "  main: {model: openai/m, base_url: 'http://h/v1', api_key_env: MY_KEY%s}\n"
    assert "holds a key" in refused(tmp_path, main_ % f", extra_body: {{user: 'x {KEY}'}}")
    assert "comment holds a key" in refused(tmp_path, main_ % "" + f"  # {KEY}\n")
    told = refused(tmp_path, main_ % ", extra_body: {api_key: '${env:MY_KEY}'}")
    assert "policies.main.api_key_env: VARIABLE" in told  # nobody reads a reference there


@pytest.mark.parametrize(
    "value", [KEY, "abc-123", "0f3a9c1d2e4b5a69", "k3x9a8c7d6e5f4a3b2c1", "two words"]
)
def test_a_key_in_the_place_of_its_name_is_refused_and_not_repeated(
    tmp_path: Path, value: str
) -> None:
    told = refused(
        tmp_path, f"  main: {{model: openai/m, base_url: 'http://h/v1', api_key_env: '{value}'}}\n"
    )
    assert "c.yaml:4: policies.main.api_key_env: " in told and value not in told
    for name in (
        "OPENAI_API_KEY",
        "my_key2",
        "KEY",
        "A1",
        "MyLongVariableForTheKey",
        "TEAM_2_KEY_OF_2026",
    ):
        (tmp_path / "c.yaml").write_text(
            WRITTEN + f"  main: {{model: openai/m, base_url: 'http://h/v1', api_key_env: {name}}}\n"
        )
        load(tmp_path / "c.yaml")


def test_a_server_that_answers_listing_requests_with_the_key_shows_it_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gem_ma.engines.endpoint.endpoint import Endpoint
    from gem_ma.engines.endpoint.remote import Remote, Service

    monkeypatch.setenv("MY_KEY", KEY)
    with FaultServer([raw({"data": [{"id": KEY, KEY: [KEY]}]})]) as server:
        endpoint = Endpoint(base_url=server.url, api_key_env="MY_KEY")
        remote = Remote("p", endpoint, Service("m", "/x", ""))
        got = asyncio.run(remote.call("/models", None, {}))
    assert got == {"data": [{"id": HIDDEN, HIDDEN: [HIDDEN]}]}

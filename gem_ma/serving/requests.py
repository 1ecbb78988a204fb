"""The body of a chat completion -> what the seat's policy is asked.

A field that would change what is sampled is honoured, or refused by one line; none is ignored in
silence. How the policy samples is a matter of the config, since its record is learned from: a
program may shorten a reply, and change nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_ma.kernel.parsing.strict_json import DECODER, clean_json, depth_exceeds
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import Sampling, Tool, Unsaid

# What the server answers where it does not do what was asked: one line, a status, and a code that
# the libraries of chat completions know.


class Refused(Exception):
    """A request that is not done. `param` is the field that is wrong."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str = "invalid_request_error",
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param

    @property
    def body(self) -> dict[str, Any]:
        """As chat completions write an error."""
        return {
            "error": {
                "message": self.message,
                "type": self.code,
                "code": self.code,
                "param": self.param,
            }
        }


DEEPEST = 96
MOST_TOOLS = 256
MOST_STOPS = 16
# what is done, or says nothing about the answer
TAKEN = {
    *("model", "messages", "tools", "tool_choice", "stop", "stream", "stream_options", "logprobs"),
    *("max_tokens", "max_completion_tokens", "structured_outputs", "return_token_ids"),
    *("temperature", "top_p", "top_k", "response_format"),
    *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
}
DRAWS = ("temperature", "top_p", "top_k")
SWITCHES = ("stream", "logprobs", "return_token_ids")
# of a message: what is read, and what libraries write back of an answer
IN_MESSAGES = {
    *("role", "content", "tool_calls", "tool_call_id", "reasoning_content", "reasoning"),
    *("refusal", "annotations", "id", "index", "status", "type"),
}
# fields that would change the answer, and the values that ask for nothing
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "min_tokens": (0,),
    "reasoning_effort": (),
    "chat_template_kwargs": ({},),
    "logit_bias": ({},),
    "top_logprobs": (0,),
    "parallel_tool_calls": (True,),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_grammar": (),
    "guided_choice": (),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A chat completion that is asked for, less its messages. `options` are sampling options that
    differ from the policy's; `ignored` are fields that mean nothing here."""

    tools: tuple[Tool, ...] = ()
    legal: tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    usage: bool = False  # a last event of the stream counts tokens
    logprobs: bool = False
    ids: bool = False
    ignored: tuple[str, ...] = ()


def parsed(text: bytes) -> dict[str, Any]:
    """The JSON object in a body. Raises Refused."""
    try:
        value = DECODER.decode(text.decode("utf-8")) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is not strict JSON: {clean(str(error))[:200]}") from None
    if not isinstance(value, dict) or depth_exceeds(value, DEEPEST):
        raise Refused(f"the body is a JSON object, nested {DEEPEST} deep at most")
    return value


def wanted(
    body: Mapping[str, Any], sampling: Sampling, legal: tuple[str, ...] | None = None
) -> Wanted:
    """What a body asks for. `sampling` is the policy's, `legal` the moves of the running turn.
    Raises Refused."""
    for name, allowed in NEUTRAL.items():
        if body.get(name) is not None and body[name] not in allowed:
            raise Refused(
                f"{name}: {json.dumps(body[name])[:80]} is not served; leave it out", param=name
            )
    for name in DRAWS:
        value = body.get(name)
        set_to = getattr(sampling, name)
        is_left = isinstance(set_to, Unsaid)
        if value is not None and (is_left or value != set_to):
            how = "as its server does" if is_left else f"at {set_to:g}"
            raise Refused(
                f"{name}: the policy of this seat samples {how}, as its config says; leave it out,"
                f" or serve with policies.NAME.{name}={json.dumps(value)[:40]}",
                param=name,
            )
    for name in SWITCHES:
        if body.get(name) not in (None, True, False):
            raise Refused(f"{name}: true or false; got {json.dumps(body[name])[:80]}", param=name)
    stream = body.get("stream_options") or {}
    tools = _tools(body)
    ignored = [name for name in body if name not in TAKEN and name not in NEUTRAL]
    # libraries set it by default; arguments that do not fit are data for the scenario
    if any(entry["function"].get("strict") for entry in body.get("tools") or ()):
        ignored.append("tools.strict")
    ignored += _ignored_in(body.get("messages"))
    return Wanted(
        tools=tools,
        legal=_legal(body, legal),
        options=_options(body, sampling),
        stream=bool(body.get("stream")),
        usage=isinstance(stream, dict) and bool(stream.get("include_usage")),
        logprobs=bool(body.get("logprobs")),
        ids=bool(body.get("return_token_ids")),
        ignored=tuple(sorted(ignored)),
    )


def _ignored_in(messages: Any) -> set[str]:
    """Fields of messages that mean nothing here. Raises Refused for a call in an older form, which
    would be lost."""
    listed = (
        messages if isinstance(messages, list) else []
    )  # what is not a list is refused elsewhere
    entries = [entry for entry in listed if isinstance(entry, dict)]
    if any(entry.get("function_call") for entry in entries):
        raise Refused("messages: function_call is not read; send tool_calls", param="messages")
    return {
        f"messages.{name}"
        for entry in entries
        for name, value in entry.items()
        if value and name not in IN_MESSAGES
    }


def _tools(body: Mapping[str, Any]) -> tuple[Tool, ...]:
    listed = body.get("tools") or []
    choice = body.get("tool_choice")
    if choice not in (None, "auto", "none"):
        raise Refused(
            f"tool_choice: {json.dumps(choice)[:80]} cannot be enforced; take auto or none",
            param="tool_choice",
        )
    if not isinstance(listed, list) or len(listed) > MOST_TOOLS:
        raise Refused(f"tools: a list of {MOST_TOOLS} tools at most", param="tools")
    tools = tuple(_tool(entry, f"tools[{place}]") for place, entry in enumerate(listed))
    names = [tool.name for tool in tools]
    for name in names:
        # a call is known by its name alone
        if not name.strip() or names.count(name) > 1:
            raise Refused(f"tools: every one has a name of its own; got {name!r}", param="tools")
    return () if choice == "none" else tools


def _tool(entry: Any, where: str) -> Tool:
    function = entry.get("function") if isinstance(entry, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Refused(
            f'{where}: {{"type": "function", "function": {{"name": ...}}}}; no other kind is known',
            param="tools",
        )
    text = function.get("description") or ""
    schema = function.get("parameters")
    if not isinstance(text, str) or not isinstance(schema, (dict, type(None))):
        raise Refused(f"{where}: description is a text, parameters a JSON schema", param="tools")
    name = clean(function["name"])
    text = clean(text)
    return Tool(name, text) if schema is None else Tool(name, text, clean_json(schema))


def _legal(body: Mapping[str, Any], legal: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The moves among which the answer is chosen, where the program asks for that."""
    form = body.get("response_format")
    if form is not None and form != {"type": "text"}:
        raise Refused(
            "response_format: answers are text; for one of the legal moves send structured_outputs:"
            ' {"choice": [...]}, else leave it out',
            param="response_format",
        )
    structured = body.get("structured_outputs")
    if not structured:
        return None
    choice = structured.get("choice") if isinstance(structured, dict) else None
    # learning computes what was chosen among from the moves on record
    if not isinstance(choice, list) or legal is None or tuple(choice) != legal:
        raise Refused(
            "structured_outputs: only choice, and only among `legal` of this turn, in its order",
            param="structured_outputs",
        )
    return legal


def _options(body: Mapping[str, Any], sampling: Sampling) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name in ("max_tokens", "max_completion_tokens"):
        most = body.get(name)
        if most is None:
            continue
        if type(most) is not int or most < 1:
            raise Refused(f"{name}: a number of tokens from 1 on; got {most!r}", param=name)
        # more than the config allows is cut there: finish_reason says so
        if most < sampling.max_tokens:
            options["max_tokens"] = most
    stop = body.get("stop")
    if stop:
        stops = [stop] if isinstance(stop, str) else stop
        if (
            not isinstance(stops, list)
            or len(stops) > MOST_STOPS
            or not all(isinstance(text, str) for text in stops)
        ):
            raise Refused(f"stop: a text, or a list of {MOST_STOPS} texts at most", param="stop")
        options["stop"] = (*sampling.stop, *(text for text in stops if text))
    return options

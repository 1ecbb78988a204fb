"""The body of a chat-completions response -> a Reply. Strict about the envelope, which a server
writes; liberal about what a model wrote in it.

A body that is no strict JSON reply, an event stream without its end, an answer that is missing,
and one that the server itself marks as failed raise `Fault`; a tool call that cannot be read is
data (`Malformed`). Invalid UTF-8 and lone surrogates are replaced, never passed on.
"""

from __future__ import annotations

import json
from typing import Any

from gem_ma.engines.http_faults import Fault, of_error_body, of_error_within
from gem_ma.engines.http_stream import joined, refuse_error
from gem_ma.parsing import MAX_CALLS, clean, parse_tool_calls, read_call
from gem_ma.types import Malformed, Reply, ToolCall, Usage

# Why an answer ended, in the words of OpenAI; of TGI (eos_token, stop_sequence), of proxies that
# pass on Anthropic's (end_turn, tool_use ...).
FINISHES = {
    **dict.fromkeys(
        (
            "stop",
            "eos",
            "eos_token",
            "stop_sequence",
            "end_turn",
            "tool_calls",
            "function_call",
            "tool_use",
        ),
        "stop",
    ),
    **dict.fromkeys(("length", "max_tokens"), "length"),
    "content_filter": "content_filter",
}
MODEL_NAME = 256  # characters; what is longer is no name
# Words with which servers say that they gave an answer up. What is in neither list is a fault as
# well, of a server that we do not understand.
GIVEN_UP = frozenset(
    {
        "error",
        "abort",
        "aborted",
        "cancelled",
        "canceled",
        "insufficient_system_resource",
        "time_limit",
        "timeout",
    }
)


def finish_of(given: Any) -> str:
    """The finish of a Reply, from a finish reason or null. Raises Fault for one that is not known:
    what came with it is no answer.

    >>> finish_of("tool_calls"), finish_of("length"), finish_of(None)
    ('stop', 'length', 'stop')
    """
    if given is None:
        return "stop"
    if isinstance(given, str) and given in FINISHES:
        return FINISHES[given]
    kind = "server" if isinstance(given, str) and given in GIVEN_UP else "bad_reply"
    raise Fault(kind, f"the finish reason {json.dumps(given)} is none of an answer", status=200)


def decode(body: bytes, content_type: str) -> dict[str, Any]:
    """The JSON object of a response, event streams joined. Raises Fault."""
    kind = content_type.split(";")[0].strip().casefold()
    text = body.decode("utf-8", "replace").removeprefix("\ufeff")
    if kind == "text/event-stream":
        return joined(text, _object, finish_of)
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise Fault("bad_reply", f"the content type is {kind}, not JSON: {text}", status=200)
    value = _object(text)
    if value.get("error"):
        raise (of_error_within if value.get("choices") else of_error_body)(value["error"])
    return value


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise Fault("bad_reply", f"JSON nested too deep: {text[:100]}", status=200) from None
    except ValueError as error:
        raise Fault("bad_reply", f"no strict JSON ({error}): {text}", status=200) from None
    if not isinstance(value, dict):
        raise Fault(
            "bad_reply", f"a JSON {type(value).__name__}, not an object: {text}", status=200
        )
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def read(body: dict[str, Any], *, tools_in_text: bool = False, ids_wanted: bool = False) -> Reply:
    """The Reply in a response body, without policy and attempts. Raises Fault where there is none.

    `ids_wanted`: a reply without token ids and log-probabilities of equal number is a fault.
    """
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise Fault(
            "bad_reply",
            "no choices in the reply" if choices is None else f"choices is {json.dumps(choices)}",
            status=200,
        )
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise Fault("bad_reply", "the choice holds no message", status=200)
    refuse_error(choice)
    finish = finish_of(choice.get("finish_reason"))
    text = _text(message.get("content")) or _text(message.get("refusal"))
    calls = _calls(message, finish)
    if tools_in_text and not calls:
        text, calls = parse_tool_calls(text)
    prompt_ids, token_ids, logprobs = _tokens(body, choice)
    if ids_wanted and not (prompt_ids and token_ids and len(token_ids) == len(logprobs)):
        what = (
            f"{len(prompt_ids)} prompt ids, {len(token_ids)} ids, {len(logprobs)} log-probabilities"
        )
        raise Fault("bad_reply", f"token ids were asked for and not given ({what})", status=200)
    usage, reasoning = _usage(body.get("usage")), _reasoning(message)
    return Reply(
        text,
        calls,
        prompt_ids,
        token_ids,
        logprobs,
        finish,
        usage=usage,
        reasoning=reasoning,
        model=_model(body),
    )


def read_completion(body: dict[str, Any], prompt: tuple[int, ...]) -> Reply:
    """The Reply in the body of a completion that was asked for token ids: prompt_ids, token_ids,
    logprobs, finish and usage, without text.

    Raises Fault where ids or log-probabilities are missing, or are those of another prompt.
    """
    choices = body.get("choices")
    choice = (
        choices[0]
        if isinstance(choices, list) and choices and isinstance(choices[0], dict)
        else None
    )
    if choice is None:
        raise Fault("bad_reply", "no choices in the reply", status=200)
    refuse_error(choice)
    finish = finish_of(choice.get("finish_reason"))
    read_ids, token_ids = (
        _ids(choice.get("prompt_token_ids")) or _ids(body.get("prompt_token_ids")),
        _ids(choice.get("token_ids")),
    )
    inner = choice.get("logprobs")
    values = _numbers(inner.get("token_logprobs") if isinstance(inner, dict) else None)
    if not token_ids or len(token_ids) != len(values):
        raise Fault(
            "bad_reply",
            f"token ids were asked for and not given ({len(token_ids)} ids, {len(values)}"
            " log-probabilities)",
            status=200,
        )
    if read_ids != prompt:
        raise Fault(
            "bad_reply",
            f"the server read {len(read_ids)} prompt ids, which are not the {len(prompt)} that were"
            " sent",
            status=200,
        )
    usage, model = _usage(body.get("usage")), _model(body)
    return Reply(
        prompt_ids=prompt,
        token_ids=token_ids,
        logprobs=values,
        finish=finish,
        usage=usage,
        model=model,
    )


def is_empty(reply: Reply) -> bool:
    """Nothing was said although the model stopped by itself: seen as a hiccup of the server first,
    as an answer in the end.

    Where the sampled ids are known, an end token alone is an answer, and so is reasoning.
    """
    return reply.finish == "stop" and reply.silent and not reply.text


def _text(content: Any) -> str:
    if isinstance(content, str):
        return clean(content)
    if isinstance(content, list):  # parts
        return clean(
            "".join(
                part["text"]
                for part in content
                if isinstance(part, dict) and isinstance(part.get("text"), str)
            )
        )
    return ""


def _reasoning(message: dict[str, Any]) -> str:
    """The model's thinking, under whichever name a server gives it: a field beside the content,
    or parts of it."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(message.get(name), str) and message[name]:
            return clean(message[name])
    content = message.get("content")
    parts = (
        [part.get("thinking") for part in content if isinstance(part, dict)]
        if isinstance(content, list)
        else []
    )
    return "".join(_text(part) for part in parts)


def _model(body: dict[str, Any]) -> str:
    name = body.get("model")
    return clean(name) if isinstance(name, str) and len(name) <= MODEL_NAME else ""


def _calls(message: dict[str, Any], finish: str) -> tuple[ToolCall | Malformed, ...]:
    given = message.get("tool_calls")
    if not given and isinstance(message.get("function_call"), dict):
        given = [{"function": message["function_call"]}]
    if not isinstance(given, list):
        return ()
    calls: list[ToolCall | Malformed] = []
    for number, one in enumerate(given):
        if number == MAX_CALLS:
            calls.append(
                Malformed("", f"too_many: {len(given)} calls in one turn, the limit is {MAX_CALLS}")
            )
            break
        function = one.get("function") if isinstance(one, dict) else None
        if not isinstance(function, dict):
            calls.append(
                Malformed(
                    clean(ascii(one)[:200]), "not_object: a call is an object with a function"
                )
            )
            continue
        call_id = (
            clean(one["id"]) if isinstance(one.get("id"), str) and one["id"] else f"call_{number}"
        )
        call = read_call(call_id, function.get("name"), function.get("arguments", ""))
        if isinstance(call, Malformed) and finish == "length" and number == len(given) - 1:
            call = Malformed(call.text, f"truncated_call: max_tokens cut it ({call.reason})")
        calls.append(call)
    return tuple(calls)


def _tokens(
    body: dict[str, Any], choice: dict[str, Any]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
    """(prompt ids, sampled ids, their log-probabilities); () for what is not there or not whole."""
    prompt, sampled = (
        (_ids(body.get("prompt_token_ids")) or _ids(choice.get("prompt_token_ids"))),
        _ids(choice.get("token_ids")),
    )
    inner = choice.get("logprobs")
    content = inner.get("content") if isinstance(inner, dict) else None
    logprobs = _numbers(
        [one.get("logprob") if isinstance(one, dict) else None for one in content]
        if isinstance(content, list)
        else None
    )
    if sampled and logprobs and len(sampled) != len(logprobs):
        return prompt, (), ()
    return prompt, sampled, logprobs


def _ids(value: Any) -> tuple[int, ...]:
    fits = isinstance(value, list) and all(
        isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in value
    )
    return tuple(value) if fits else ()


def _numbers(value: Any) -> tuple[float, ...]:
    fits = isinstance(value, list) and all(
        isinstance(one, (int, float)) and not isinstance(one, bool) for one in value
    )
    return tuple(map(float, value)) if fits else ()


def _usage(given: Any) -> Usage:
    if not isinstance(given, dict):
        return Usage()
    details = given.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    details = given.get("completion_tokens_details")
    reasoning = details.get("reasoning_tokens") if isinstance(details, dict) else None
    return Usage(
        _count(given.get("prompt_tokens")),
        _count(given.get("completion_tokens")),
        _count(cached),
        _count(reasoning),
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

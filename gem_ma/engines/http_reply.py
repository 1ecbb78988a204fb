"""The body of a chat-completions response -> a Reply. Strict about the envelope, which a server writes; liberal about what a model wrote in it.

A body that is no strict JSON reply, an event stream without its end, and an answer that is missing raise `Fault`; a tool call that cannot be
read is data (`Malformed`). Invalid UTF-8 and lone surrogates are replaced, never passed on.
"""

from __future__ import annotations

import json
from typing import Any

from gem_ma.engines.http_faults import Fault, of_error_body
from gem_ma.parsing import MAX_CALLS, clean, parse_tool_calls, read_call
from gem_ma.types import Malformed, Reply, ToolCall, Usage

FINISHES = {"length": "length", "max_tokens": "length", "content_filter": "content_filter"}  # all else is a stop


def decode(body: bytes, content_type: str) -> dict[str, Any]:
    """The JSON object of a response, event streams joined. Raises Fault."""
    kind = content_type.split(";")[0].strip().casefold()
    text = body.decode("utf-8", "replace").removeprefix("\ufeff")
    if kind == "text/event-stream":
        return _joined(text)
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise Fault("bad_reply", f"the content type is {kind}, not JSON: {text}", status=200)
    return _object(text)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise Fault("bad_reply", f"JSON nested too deep: {text[:100]}", status=200) from None
    except ValueError as error:
        raise Fault("bad_reply", f"no strict JSON ({error}): {text}", status=200) from None
    if not isinstance(value, dict):
        raise Fault("bad_reply", f"a JSON {type(value).__name__}, not an object: {text}", status=200)
    if value.get("error"):
        raise of_error_body(value["error"])
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _joined(text: str) -> dict[str, Any]:
    """The reply that the events of a stream add up to. Raises Fault where its end never came."""
    whole: dict[str, Any] = {}
    message: dict[str, Any] = {"role": "assistant", "content": None}
    texts: list[str] = []
    refusals: list[str] = []
    thoughts: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": None}
    logprobs: list[Any] = []
    ids: list[Any] = []
    done = started = False
    for data in _events(text):
        if data == "[DONE]":
            done = True
            break
        event = _object(data)
        for key in ("usage", "prompt_token_ids", "model"):
            if event.get(key) is not None:
                whole[key] = event[key]
        for part in _list_at(event, "choices"):
            if not isinstance(part, dict) or part.get("index", 0) != 0:
                continue
            started = True
            delta = _object_at(part, "delta")
            for key, pieces in (("content", texts), ("refusal", refusals), ("reasoning_content", thoughts), ("reasoning", thoughts)):
                if isinstance(delta.get(key), str):
                    pieces.append(delta[key])
            _add_calls(calls, delta.get("tool_calls"))
            logprobs += _list_at(_object_at(part, "logprobs"), "content")
            ids += _list_at(part, "token_ids")
            whole["prompt_token_ids"] = part.get("prompt_token_ids") or whole.get("prompt_token_ids")
            choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
    if not done and choice["finish_reason"] is None:
        raise Fault("bad_reply", f"the event stream ended before its last event: {text[-150:]}", status=200)
    message["content"] = "".join(texts) or None
    message["refusal"], message["reasoning_content"] = "".join(refusals) or None, "".join(thoughts) or None
    message["tool_calls"] = [calls[index] for index in sorted(calls)] or None
    choice |= {"logprobs": {"content": logprobs} if logprobs else None, "token_ids": ids or None}
    return {**whole, "choices": [choice] if started else []}


def _object_at(value: dict[str, Any], key: str) -> dict[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _list_at(value: dict[str, Any], key: str) -> list[Any]:
    inner = value.get(key)
    return inner if isinstance(inner, list) else []


def _events(text: str) -> list[str]:
    """The data of each server-sent event: its `data:` lines, joined."""
    found: list[str] = []
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):  # not splitlines: U+2028 may stand inside JSON
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line and lines:
            found.append("\n".join(lines))
            lines = []
    if lines:
        found.append("\n".join(lines))  # cut in the middle: strict JSON tells whether it is whole
    return found


def _add_calls(calls: dict[int, dict[str, Any]], deltas: Any) -> None:
    for delta in deltas if isinstance(deltas, list) else ():
        if not isinstance(delta, dict):
            continue
        index = delta.get("index")
        index = index if isinstance(index, int) else max(calls, default=-1) + (1 if delta.get("id") or not calls else 0)
        call = calls.setdefault(index, {"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
        call["id"] = delta.get("id") or call["id"]
        part = _object_at(delta, "function")
        for key in ("name", "arguments"):
            if isinstance(part.get(key), str):
                call["function"][key] += part[key]


def read(body: dict[str, Any], *, tools_in_text: bool = False, ids_wanted: bool = False) -> Reply:
    """The Reply in a response body, without policy and attempts. Raises Fault where there is none.

    `ids_wanted`: a reply without token ids and log-probabilities of equal number is a fault.
    """
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise Fault("bad_reply", "no choices in the reply" if choices is None else f"choices is {json.dumps(choices)[:50]}", status=200)
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise Fault("bad_reply", "the choice holds no message", status=200)
    finish = FINISHES.get(str(choice.get("finish_reason")), "stop")
    text = _text(message.get("content")) or _text(message.get("refusal"))
    calls = _calls(message, finish)
    if tools_in_text and not calls:
        text, calls = parse_tool_calls(text)
    prompt_ids, token_ids, logprobs = _tokens(body, choice)
    if ids_wanted and not (prompt_ids and token_ids and len(token_ids) == len(logprobs)):
        what = f"{len(prompt_ids)} prompt ids, {len(token_ids)} ids, {len(logprobs)} log-probabilities"
        raise Fault("bad_reply", f"token ids were asked for and not given ({what})", status=200)
    return Reply(text, calls, prompt_ids, token_ids, logprobs, finish, usage=_usage(body.get("usage")))


def read_completion(body: dict[str, Any], prompt: tuple[int, ...]) -> Reply:
    """The Reply in the body of a completion that was asked for token ids: prompt_ids, token_ids, logprobs, finish and usage, without text.

    Raises Fault where ids or log-probabilities are missing, or are those of another prompt.
    """
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    if choice is None:
        raise Fault("bad_reply", "no choices in the reply", status=200)
    if choice.get("finish_reason") == "abort":
        raise Fault("server", "the server gave the request up", status=200)
    read_ids, token_ids = _ids(choice.get("prompt_token_ids")) or _ids(body.get("prompt_token_ids")), _ids(choice.get("token_ids"))
    inner = choice.get("logprobs")
    values = _numbers(inner.get("token_logprobs") if isinstance(inner, dict) else None)
    if not token_ids or len(token_ids) != len(values):
        raise Fault("bad_reply", f"token ids were asked for and not given ({len(token_ids)} ids, {len(values)} log-probabilities)", status=200)
    if read_ids != prompt:
        raise Fault("bad_reply", f"the server read {len(read_ids)} prompt ids, which are not the {len(prompt)} that were sent", status=200)
    finish = FINISHES.get(str(choice.get("finish_reason")), "stop")
    return Reply(prompt_ids=prompt, token_ids=token_ids, logprobs=values, finish=finish, usage=_usage(body.get("usage")))


def is_empty(reply: Reply) -> bool:
    """Nothing was said although the model stopped by itself: seen as a hiccup of the server first, as an answer in the end.

    Where the sampled ids are known, an end token alone is an answer.
    """
    return reply.finish == "stop" and not reply.text and not reply.tool_calls and not reply.token_ids


def _text(content: Any) -> str:
    if isinstance(content, str):
        return clean(content)
    if isinstance(content, list):  # parts
        return clean("".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)))
    return ""


def _calls(message: dict[str, Any], finish: str) -> tuple[ToolCall | Malformed, ...]:
    given = message.get("tool_calls")
    if not given and isinstance(message.get("function_call"), dict):
        given = [{"function": message["function_call"]}]
    if not isinstance(given, list):
        return ()
    calls: list[ToolCall | Malformed] = []
    for number, one in enumerate(given):
        if number == MAX_CALLS:
            calls.append(Malformed("", f"too_many: {len(given)} calls in one turn, the limit is {MAX_CALLS}"))
            break
        function = one.get("function") if isinstance(one, dict) else None
        if not isinstance(function, dict):
            calls.append(Malformed(clean(ascii(one)[:200]), "not_object: a call is an object with a function"))
            continue
        call_id = clean(one["id"]) if isinstance(one.get("id"), str) and one["id"] else f"call_{number}"
        call = read_call(call_id, function.get("name"), function.get("arguments", ""))
        if isinstance(call, Malformed) and finish == "length" and number == len(given) - 1:
            call = Malformed(call.text, f"truncated_call: max_tokens cut it ({call.reason})")
        calls.append(call)
    return tuple(calls)


def _tokens(body: dict[str, Any], choice: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
    """(prompt ids, sampled ids, their log-probabilities); () for what is not there or not whole."""
    prompt, sampled = (_ids(body.get("prompt_token_ids")) or _ids(choice.get("prompt_token_ids"))), _ids(choice.get("token_ids"))
    inner = choice.get("logprobs")
    content = inner.get("content") if isinstance(inner, dict) else None
    logprobs = _numbers([one.get("logprob") if isinstance(one, dict) else None for one in content] if isinstance(content, list) else None)
    if sampled and logprobs and len(sampled) != len(logprobs):
        return prompt, (), ()
    return prompt, sampled, logprobs


def _ids(value: Any) -> tuple[int, ...]:
    fits = isinstance(value, list) and all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in value)
    return tuple(value) if fits else ()


def _numbers(value: Any) -> tuple[float, ...]:
    fits = isinstance(value, list) and all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in value)
    return tuple(map(float, value)) if fits else ()


def _usage(given: Any) -> Usage:
    if not isinstance(given, dict):
        return Usage()
    details = given.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(_count(given.get("prompt_tokens")), _count(given.get("completion_tokens")), _count(cached))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

"""The body of a chat-completions response -> a Reply. Strict about the envelope, which a server
writes; liberal about what a model wrote in it.

A body that is not a strict JSON reply, an event stream without its end, an answer that is missing,
and one that the server itself marks as failed raise `Fault`; a tool call that cannot be read is
data (`Malformed`). Invalid UTF-8 and lone surrogates are replaced, never passed on.
"""

from __future__ import annotations

import json
from operator import itemgetter
from typing import Any

from gem_ma.engines.endpoint.envelope import (
    count_in,
    ids_in,
    is_first,
    logprobs_in,
    parsed,
    part,
    refuse_error,
    text_of,
    thought_of,
)
from gem_ma.engines.endpoint.faults import Fault, of_error_body, of_error_within
from gem_ma.engines.endpoint.stream import joined, list_at, object_at
from gem_ma.kernel.parsing.calls import read_call
from gem_ma.kernel.parsing.formats import parse_tool_calls
from gem_ma.kernel.parsing.reasoning import split_reasoning
from gem_ma.kernel.parsing.strict_json import MAX_CALLS
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import Malformed, Reply, ToolCall, Usage

# Why an answer ended, in the words of OpenAI, TGI, Anthropic, Gemini, Mistral, Cohere, Bedrock,
# watsonx and Zhipu, folded.
FINISHES = {
    **dict.fromkeys(
        (
            "stop",
            "eos",
            "eos_token",
            "stop_sequence",
            "end_turn",
            "complete",
            "tool_call",
            "tool_calls",
            "function_call",
            "tool_use",
        ),
        "stop",
    ),
    # the window was full, or the server paused in the middle: what came is not the whole answer
    **dict.fromkeys(
        (
            "length",
            "max_tokens",
            "max_output_tokens",
            "max_length",
            "token_limit",
            "model_length",
            "model_context_window_exceeded",
            "pause_turn",
        ),
        "length",
    ),
    **dict.fromkeys(
        (
            "content_filter",
            "content_filtered",
            "refusal",
            "safety",
            "image_safety",
            "recitation",
            "blocklist",
            "prohibited_content",
            "spii",
            "error_toxic",
            "sensitive",
            "guardrail_intervened",
        ),
        "content_filter",
    ),
}
FULL = ("model_length", "model_context_window_exceeded")  # the window was, and not max_tokens
_LOGPROB = itemgetter("logprob")
MODEL_NAME = 256  # characters; what is longer is not a name
# Words with which servers say that they gave an answer up. What is in neither list is a fault as
# well, of a server that we do not understand.
GIVEN_UP = frozenset(
    {
        "error",
        "abort",
        "aborted",
        "cancelled",
        "canceled",
        "failed",
        "insufficient_system_resource",
        "network_error",
        "not_finished",
        "time_limit",
        "timeout",
        "user_cancel",
    }
)


def finish_of(reason: Any) -> str:
    """The finish of a Reply, from a finish reason or null. Raises Fault for one that is not known:
    what came with it is not an answer.

    >>> finish_of("tool_calls"), finish_of("MAX_TOKENS"), finish_of(None)
    ('stop', 'length', 'stop')
    """
    if reason is None:
        return "stop"
    word = reason.casefold().replace("-", "_") if isinstance(reason, str) else ""
    if word in FINISHES:
        return FINISHES[word]
    kind = "server" if word in GIVEN_UP else "bad_reply"
    raise Fault(kind, f"the finish reason {json.dumps(reason)} is none of an answer", status=200)


def decode(body: bytes, content_type: str) -> dict[str, Any]:
    """The JSON object of a response, event streams joined. Raises Fault."""
    kind = content_type.split(";")[0].strip().casefold()
    text = body.decode("utf-8", "replace").removeprefix("\ufeff")  # a mark that JSON forbids
    # a server may stream under the name of JSON, and answer whole where a stream was asked for
    if (kind == "text/event-stream" and not text.lstrip().startswith("{")) or (
        kind in ("", "application/json") and text.startswith(("data:", "event:", ": "))
    ):
        return joined(text, parsed, finish_of)
    # pages of proxies come with status 200 too; some servers name no type at all
    if kind not in ("", "application/json", "text/event-stream") and not kind.endswith("+json"):
        raise Fault("bad_reply", f"the content type is {kind}, not JSON: {text}", status=200)
    value = parsed(text)
    if value.get("error"):
        raise (of_error_within if value.get("choices") else of_error_body)(value["error"])
    return value


def read(body: dict[str, Any], *, tools_in_text: bool = False, ids_wanted: bool = False) -> Reply:
    """The Reply in a response body, without policy and attempts. Raises Fault where there is none.

    `ids_wanted`: a reply without token ids and log-probabilities of equal number is a fault.
    """
    choice = _choice(body)
    # A message without a field is silence, as an empty text is; a choice without one is broken.
    message = {} if choice.get("message") == {} else part(choice, "message")
    if message is None:
        raise Fault("bad_reply", "the choice holds no message", status=200)
    finish = finish_of(choice.get("finish_reason"))
    # a refusal is what the model said, in a field of its own at OpenAI
    text = clean(text_of(message, "content") or text_of(message, "refusal"))
    # before calls are looked for: those in a thought are thoughts
    thought, text = split_reasoning(text)
    calls = _calls(message, finish)
    if tools_in_text and not calls:  # a server may understand them all the same
        text, calls = parse_tool_calls(text)
    if not text and not calls and choice.get("finish_reason") in FULL:
        finish = "context_overflow"
    prompt_ids, token_ids, logprobs = _tokens(body, choice)
    if ids_wanted and not (prompt_ids and token_ids and len(token_ids) == len(logprobs)):
        what = (
            f"{len(prompt_ids)} prompt ids, {len(token_ids)} ids, {len(logprobs)} log-probabilities"
        )
        raise Fault("bad_reply", f"token ids were asked for and not given ({what})", status=200)
    usage = usage_of(body)
    # both only where a server gives one thought apart and leaves another one in the text
    reasoning = "\n\n".join(filter(None, (clean(thought_of(message)), thought)))
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
    choice = _choice(body)
    finish = finish_of(choice.get("finish_reason"))
    read_ids = ids_in(choice.get("prompt_token_ids")) or ids_in(body.get("prompt_token_ids"))
    token_ids = ids_in(choice.get("token_ids"))
    inner = choice.get("logprobs")
    values = logprobs_in(inner.get("token_logprobs") if isinstance(inner, dict) else None)
    if not token_ids or len(token_ids) != len(values):
        raise Fault(
            "bad_reply",
            f"token ids were asked for and not given ({len(token_ids)} ids, {len(values)}"
            " log-probabilities)",
            status=200,
        )
    # text that was encoded again, or a prompt that was cut: weights would learn from another one
    if read_ids != prompt:
        raise Fault(
            "bad_reply",
            f"the server read {len(read_ids)} prompt ids, which are not the {len(prompt)} that were"
            " sent",
            status=200,
        )
    usage = usage_of(body)
    model = _model(body)
    return Reply(
        prompt_ids=prompt,
        token_ids=token_ids,
        logprobs=values,
        finish=finish,
        usage=usage,
        model=model,
    )


def _choice(body: dict[str, Any]) -> dict[str, Any]:
    """The one choice that was asked for. Raises Fault where there is none, or it holds an error."""
    choices: list[dict[str, Any]] | None = part(body, "choices")
    first = next(filter(is_first, choices), None) if choices is not None else None
    if first is None:
        raise Fault(
            "bad_reply",
            "no choices in the reply" if choices is None else "no choice of index 0 in the reply",
            status=200,
        )
    refuse_error(first)
    return first


def is_empty(reply: Reply) -> bool:
    """Nothing was said although the model stopped by itself: seen as a hiccup of the server first,
    as an answer in the end.

    Where the sampled ids are known, an end token alone is an answer, and so is reasoning.
    """
    return reply.finish == "stop" and reply.silent and not reply.text


def _model(body: dict[str, Any]) -> str:
    name = body.get("model")
    return clean(name) if isinstance(name, str) and len(name) <= MODEL_NAME else ""


def _calls(message: dict[str, Any], finish: str) -> tuple[ToolCall | Malformed, ...]:
    entries = part(message, "tool_calls")
    if entries is None:
        single = part(message, "function_call")  # as OpenAI wrote calls until 2023
        entries = [{"function": single}] if single is not None else []
    calls: list[ToolCall | Malformed] = []
    for number, entry in enumerate(entries):
        if number == MAX_CALLS:  # each is checked and answered, so their number is bounded
            calls.append(
                Malformed(
                    "", f"too_many: {len(entries)} calls in one turn, the limit is {MAX_CALLS}"
                )
            )
            break
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(function, dict):
            calls.append(
                Malformed(
                    clean(ascii(entry)[:200]), "not_object: a call is an object with a function"
                )
            )
            continue
        written = entry.get("id")
        call_id = clean(written) if isinstance(written, str) and written else f"call_{number}"
        call = read_call(call_id, function.get("name"), function.get("arguments", ""))
        if isinstance(call, Malformed) and finish == "length" and number == len(entries) - 1:
            call = Malformed(call.text, f"truncated_call: max_tokens cut it ({call.reason})")
        calls.append(call)
    return tuple(calls)


def _tokens(
    body: dict[str, Any], choice: dict[str, Any]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
    """(prompt ids, sampled ids, their log-probabilities); () for what is not there or not whole."""
    # vLLM has had the prompt's ids in both places
    prompt = ids_in(body.get("prompt_token_ids")) or ids_in(choice.get("prompt_token_ids"))
    sampled = ids_in(choice.get("token_ids"))
    inner = choice.get("logprobs")
    content = inner.get("content") if isinstance(inner, dict) else None
    tokens = content if isinstance(content, list) else []
    try:
        logprobs = logprobs_in(list(map(_LOGPROB, tokens)))
    except (KeyError, TypeError, IndexError):  # one of them has none
        logprobs = ()
    # of which token a log-probability is cannot be told any more
    if sampled and logprobs and len(sampled) != len(logprobs):
        return prompt, (), ()
    return prompt, sampled, logprobs


def usage_of(body: dict[str, Any]) -> Usage:
    """How many tokens a server counted, be it for an answer that is none; None for what it does
    not say."""
    choices = [choice for choice in list_at(body, "choices") if isinstance(choice, dict)]
    holders = (object_at(holder, "usage") for holder in (body, *choices[:1]))
    counts: dict[str, Any] = next(filter(None, holders), {})
    prompt = count_in(counts.get("prompt_tokens"))
    sampled = count_in(counts.get("completion_tokens"))
    total = count_in(counts.get("total_tokens"))
    thought = count_in(object_at(counts, "completion_tokens_details").get("reasoning_tokens"))
    told = (
        object_at(counts, "prompt_tokens_details").get("cached_tokens"),
        counts.get("cached_tokens"),  # Moonshot
        counts.get("prompt_cache_hit_tokens"),  # DeepSeek
    )
    cached = next((count for count in map(count_in, told) if count is not None), None)
    if prompt is not None and sampled is not None and total is not None:
        # xAI and Gemini count thoughts, which are paid as what was sampled, in the total alone
        beside = total - prompt - sampled
        # a total may also have what was read out of a cache, or written into one, beside the prompt
        of_cache = [count_in(count) or 0 for name, count in counts.items() if "cache" in name]
        is_cache = beside in (cached, *of_cache, sum(of_cache))
        if beside > 0 and (thought == beside or (thought is None and not is_cache)):
            sampled += beside
    return Usage(prompt, sampled, cached, thought)

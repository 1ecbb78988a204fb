"""What servers say of a request that they refuse: too long for the model, flagged by a moderation,
or a fault of the request. Every vendor has words of its own; these are of their kinds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gem_ma.engines.endpoint.faults import of_error_body, of_status
from gem_ma.engines.endpoint.sentences import flagged, overflows

TOO_LONG = [
    "The model reads a maximum context length of 8192 tokens, and your messages came to 8227.",
    "Your input exceeds the context window of the model.",
    "Input tokens exceed the configured limit of 27200. Your messages resulted in 29344 tokens.",
    "prompt is too long: 20831 tokens > 20000 maximum",
    "input length and `max_tokens` exceed context limit: 19975 + 819 > 20000, decrease either",
    "The input token count (12000) exceeds the maximum number of tokens allowed (10485).",
    "Cannot submit it, because the input token count is 9001 but the model only supports up to 9000",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 as a context",
    "too many tokens: the tokens in the prompt cannot exceed 4081, got 4292. See https://a.b/c/d.",
    "too many tokens: size limit exceeded by 1132 tokens. Use shorter or fewer inputs",
    "too many tokens",
    "Input is too long for this model.",
    "Malformed input request: expected maxLength: 2097, actual: 2100, please reformat your input",
    "Too many input tokens. Max input tokens: 8192, request input token count: 9000",
    "the input length exceeds the context length",
    "prompt too long; exceeded max context length by 512 tokens",
    "the request exceeds the available context size",
    "request (5000 tokens) exceeds the available context size (4096 tokens)",
    "Keeping the first 5000 tokens when context overflows; it is loaded with 4096 only",
    "The tokens to keep from the initial prompt are more than the context length.",
    "Context size has been exceeded.",
    "You asked for 1 output tokens and your prompt contains at least 4096 input tokens, the"
    " maximum context length is 4096.",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "'max_tokens' is too large: 3000. The maximum context length is 4096 tokens and your request"
    " has 2000 input tokens (3000 > 4096 - 2000).",
    "The input (69179 tokens) is longer than the model's context length (54000 tokens).",
    "Requested token count exceeds the model's context. You want 30000 tokens for the input"
    " messages and 10000 for the completion.",
    "Multimodal prompt is too long after its images were expanded.",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 100",
    "`inputs` must have less than 4095 tokens. Given: 5000",
    "The maximum prompt length is 13107 but the request contains 53781 tokens.",
    "Please reduce the length of the messages or completion.",
    "The prompt is too long: 150000, model maximum context length: 131071",
    "prompt token count of 130000 exceeds the limit of 128000",
    "invalid params, context window exceeds limit (2013)",
    "Your request exceeded model token limit: 13107 (requested: 14000)",
    "Algo.InvalidParameter: Range of input length should be [1, 12902]",
    "Prompt 超长",
    "您的输入超出了模型的上下文长度",
    "tokens in request more than max tokens allowed",
    "number of input tokens (20470) has exceeded max_prompt_tokens (20275) limit.",
    "length of prompt_tokens (9000) must be less than max_seq_len (8192).",
    "Prompt length 5000 is greater than max_seq_len 4096",
    "Request body too large for this model. Max size: 8000 tokens.",
    "Invalid 'messages[1].content': string too long. Expected one of maximum length 1048, got 2000",
    "messages.0.content: String should have at most 10000 characters",
    "n_prompt_tokens 9000 > n_ctx 8192",
    "ContextWindowExceededError",
    "InputTooLongError",
    "Your prompt (9000 tokens) is over the 8192 token limit",
    "The message was too long, please submit something shorter.",
    "The conversation history no longer fits",
    "KV cache is full: prompt needs 9000 tokens, 8192 are there",
    "The context of the model is limited to 8192 tokens, got 9000",
    "maximum number of tokens in the input is 8192",
    "The text you sent exceeds 4096 tokens",
    "max_seq_len_exceeded: prompt",
    "context window is too small for this prompt",
    "You requested 5000 tokens but the context is 4096",
    "Prompt is too large",
]
OTHERWISE = [
    "max_tokens is too large: 10000. The model has at most 1638 completion tokens, you gave 10000.",
    "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens",
    "too many tokens: max tokens must be less than or equal to 4096, the maximum output, got 8192.",
    "`max_tokens` must be less than or equal to `4096`",
    "Please reduce max_tokens; your request exceeds the maximum output length of 4096 tokens",
    "Maximum number of tokens to generate exceeded",
    "Range of max_tokens should be [1, 8192]",
    "Request too large on tokens per minute (TPM): Limit 6000, Requested 8000, reduce your message",
    "Too many tokens, please wait before trying again.",
    "Your organization has exceeded its monthly token limit",
    "the request wants more credits, or fewer max_tokens: up to 65536 tokens, you can afford 2000",
    "image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes",
    "messages.0.content.1.image.source.data: image dimensions exceed max allowed size: 8000 pixels",
    "Audio input is too long",
    "Too many images in request: 30, at most 20 are allowed",
    "Invalid 'tools': array too long. Expected maximum length 128, but got length 200.",
    "Invalid 'tools[0].function.name': string too long. Expected maximum length 64, got 80.",
    "Invalid 'messages[2].tool_calls[0].id': string too long. Expected maximum length 40, got 53.",
    "Malformed input request: #/tools/0/toolSpec/name: expected maxLength: 64, actual: 70",
    "tool description too long: 2000 characters, maximum 1024",
    "Too many tools in the request: 200 > 128",
    "Request body too large (33 MB, the limit is 32 MB)",
    "Request exceeds the maximum allowed number of bytes",
    "temperature: Input should be less than or equal to 1",
    "thinking.budget_tokens: Input should be greater than or equal to 1024",
    "prompt_cache_key: string too long. Expected a string with maximum length 64",
    "body.messages.0.name: String should have at most 64 characters",
    "The JSON schema is too long: 15000 characters, at most 10000",
    "The stop sequence is too long",
    "context deadline exceeded",
    "Timeout: the request took longer than 60 seconds",
    "your session token expired more than 5 minutes ago, request a new one",
    "Prompt must not be empty",
    "min_tokens must be less than or equal to max_tokens",
    "The name of the message author is too long",
    "logit_bias: too many tokens, at most 300",
    "Invalid body: unexpected token, more than one value in the request",
    "Not enough memory to load a context of 13107 tokens",
    "The number of messages exceeds the limit of 100",
]


@pytest.mark.parametrize("sentence", TOO_LONG)
def test_a_conversation_that_is_too_long_is_an_overflow_in_any_words(sentence: str) -> None:
    for status, body in (
        (400, {"error": {"message": sentence, "type": "invalid_request_error", "code": 400}}),
        (413, {"object": "error", "message": sentence, "code": None}),
        (422, {"detail": sentence}),
        (400, [{"error": {"code": 400, "message": sentence, "status": "INVALID_ARGUMENT"}}]),
        (
            400,
            {"error": {"message": "Provider returned error", "metadata": {"raw": sentence}}},
        ),
        (500, {"error": sentence}),
    ):
        assert of_status(status, {}, json.dumps(body)).kind == "context_overflow", body
    assert of_error_body({"message": sentence}).kind == "context_overflow"


@pytest.mark.parametrize("sentence", OTHERWISE)
def test_what_is_too_long_or_too_much_otherwise_is_no_overflow(sentence: str) -> None:
    for status in (400, 413, 422):
        assert of_status(status, {}, json.dumps({"error": {"message": sentence}})).kind == "request"


def test_a_validator_is_read_by_its_places_and_not_by_the_request_that_it_repeats() -> None:
    fault = {"type": "x", "loc": ["body", "user"], "msg": "String should have at most 8 characters"}
    echoed = {**fault, "input": "the prompt is too long for the context length of 8 tokens"}
    for body in ({"detail": [echoed]}, {"message": {"detail": [echoed]}}):
        got = of_status(422, {}, json.dumps(body))
        assert got.kind == "request" and got.detail == f"body.user: {fault['msg']}"


FLAGGED: list[tuple[int, Any]] = [
    (403, {"code": 403, "message": "Your input was flagged", "metadata": {"reasons": ["hate"]}}),
    (403, {"message": "Provider returned error", "metadata": {"flagged_input": "..."}}),
    (400, {"code": "content_filter", "message": "filtered, since the prompt triggered a policy"}),
    (400, {"message": "no", "innererror": {"code": "ResponsibleAIPolicyViolation"}}),
    (400, {"message": "The request was rejected by the safety system."}),
    (400, {"message": "your prompt may be violating our usage policy", "code": "invalid_prompt"}),
    (400, {"message": "Output blocked by content filtering policy"}),
    (403, {"message": "Content violates usage guidelines", "type": "permission_error"}),
    (400, {"message": "The request was blocked by a guardrail."}),
    (403, {"message": "Guardrail intervened: the prompt was blocked"}),
    (400, {"message": "Content Exists Risk"}),
    (400, {"code": "DataInspectionFailed", "message": "Input may be improper"}),
    (400, {"message": "输入内容可能包含敏感信息"}),
    (451, {"message": "The input violates our terms of service"}),
]
OF_THE_KEY: list[tuple[int, Any]] = [
    (401, {"message": "Incorrect API key provided"}),
    (401, {"message": "Your input was flagged"}),
    (403, {"message": "Your API key was flagged for odd requests"}),
    (403, {"message": "Your account is suspended for violating our usage policies"}),
    (403, {"message": "Your organization was flagged by our moderation team"}),
    (403, {"message": "Country or territory not supported for this request"}),
    (403, {"message": "You don't have access to the guardrail that the request names"}),
    (403, {"message": "The caller does not have permission"}),
    (403, "Forbidden"),
    (403, ""),
]


@pytest.mark.parametrize(("status", "error"), FLAGGED, ids=str)
def test_a_flagged_prompt_is_an_answer_of_its_play(status: int, error: Any) -> None:
    assert of_status(status, {}, json.dumps({"error": error})).kind == "content_filter"


@pytest.mark.parametrize(("status", "error"), OF_THE_KEY, ids=str)
def test_a_refused_key_ends_the_run_whatever_else_is_said(status: int, error: Any) -> None:
    assert of_status(status, {}, json.dumps({"error": error})).kind == "auth"


@pytest.mark.parametrize(
    "sentence",
    [
        "text with the disallowed special token '<|end|>'",
        "the order of messages violates the protocol: a result without its call",
        "names of fields are case sensitive in the request",
        "the guardrail that the request names does not exist",
        "invalid value of safety_settings in the request",
    ],
)
def test_a_request_with_a_fault_was_not_flagged(sentence: str) -> None:
    assert of_status(400, {}, json.dumps({"error": {"message": sentence}})).kind == "request"


def test_a_sentence_of_any_length_is_read_up_to_a_bound() -> None:
    beyond = "x " * 5000 + "the prompt is too long for the context, and was flagged"
    assert not overflows(beyond) and not flagged(beyond)

"""What a program may ask, from a path and a body to an answer. Runs in the threads of the server.

POST   /episodes                            takes a seat: {"agent": NAME} where several are free
GET    /episode/KEY                         what is new, or how it ended; waits for it
POST   /episode/KEY/act                     {"turn": 1, "message": {...}}; answers as GET does
DELETE /episode/KEY                         gives up: {"reason": ...}
POST   /episode/KEY/v1/chat/completions     the seat's policy
GET    /episode/KEY/v1/models
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from gem_ma.driver.limits import Cut
from gem_ma.engines.wording import speaker
from gem_ma.kernel.errors import GemMaError
from gem_ma.kernel.parsing.calls import read_call
from gem_ma.kernel.parsing.legal import parse_action
from gem_ma.kernel.parsing.reasoning import split_reasoning
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.spelling import in_quotes
from gem_ma.kernel.types import Action, Image, Malformed, Message, Reply, ToolCall
from gem_ma.serving.desk import Desk
from gem_ma.serving.program import Ending, News, OverError, Program, ProtocolFault
from gem_ma.serving.requests import Refused, Wanted, wanted

# Messages between a program and its seat: as chat completions write them, and as the library has
# them.
# What a program sends back as its own line is mostly what its model said here. It is known again,
# so the next prompt goes on from the sampled ids, as it does for a behaviour of the house.

MOST_MESSAGES = 4096
ROLES = ("system", "developer", "user", "assistant", "tool")
_Key = tuple[str, tuple[tuple[str, str, str], ...]]  # text, and (id, name, arguments) of each call


class Sayings:
    """What one program was sent as its model's lines."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        # the line as it was sent -> the line as it was sampled, and the ids that its calls had
        self._known: dict[_Key, tuple[Message, tuple[str, ...]]] = {}
        self._threads: dict[str, str] = {}
        self._calls = self.replies = 0

    def written(self, reply: Reply) -> dict[str, Any]:
        """A reply as an assistant's message. Calls get ids that are unique in the play: models
        repeat theirs, and libraries match a result to its call by id alone."""
        # a call that could not be read is text: the program sees what its model wrote
        self.replies += 1
        lost = [call.text for call in reply.tool_calls if isinstance(call, Malformed)]
        text = "".join([reply.text, *lost])
        calls = []
        for call in reply.tool_calls:
            if isinstance(call, ToolCall):
                self._calls += 1
                calls.append(_call_entry(f"call_{self._calls}", call.name, call.arguments))
        entry: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            entry["tool_calls"] = calls
        elif not text:
            entry["content"] = ""  # null stands for calls alone
        if reply.reasoning:
            entry["reasoning_content"] = reply.reasoning
        ids = tuple(call.id for call in reply.tool_calls if isinstance(call, ToolCall))
        line = Message(reply.text, self.agent, reply.tool_calls)
        self._known[_key(text, [(each["id"], each["function"]) for each in calls])] = line, ids
        return entry

    def read(self, entries: Any) -> tuple[Message, ...]:
        """The messages of a request. Raises Refused."""
        if not isinstance(entries, list) or not entries:
            raise Refused("messages: a list of at least one message", param="messages")
        if len(entries) > MOST_MESSAGES:
            raise Refused(f"messages: {MOST_MESSAGES} at most; got {len(entries)}")
        ids: dict[str, str] = {}  # of a call as it was sent -> as it was sampled
        return tuple(
            self._message(entry, f"messages[{place}]", ids) for place, entry in enumerate(entries)
        )

    def action(self, entry: Any, legal: tuple[str, ...] | None) -> Action:
        """What an assistant's message does, as `direct` does what its model says. Raises
        Refused."""
        if not isinstance(entry, dict) or entry.get("role", "assistant") != "assistant":
            raise Refused("message: the assistant's message that answers the turn", param="message")
        line = self._message({**entry, "role": "assistant"}, "message", {})
        if line.tool_calls:
            return Action(split_reasoning(line.text)[1], line.tool_calls)
        return parse_action(line.text, legal)

    def thread(self, messages: Sequence[Message]) -> str:
        """Which of the program's conversations this is: each briefing has its own. "" for the
        first, which is then the one that `direct` has."""
        briefing = ""
        for message in messages:
            if message.sender != "system":
                break
            briefing += f"{message.text}\0"
        number = len(self._threads)
        return self._threads.setdefault(briefing, f"program{number}" if number else "")

    def _message(self, entry: Any, where: str, ids: dict[str, str]) -> Message:
        role = entry.get("role") if isinstance(entry, dict) else None
        if role not in ROLES:
            raise Refused(f"{where}.role: one of {', '.join(ROLES)}; got {role!r}")
        text = _text(entry.get("content"), f"{where}.content")
        if role == "assistant":
            return self._own_line(entry, text, where, ids)
        if role == "tool":
            call = entry.get("tool_call_id")
            if not isinstance(call, str):
                raise Refused(f"{where}.tool_call_id: the id of a call; got {call!r}")
            return Message.tool(ids.get(call, call), text)
        return Message(text) if role == "user" else Message.system(text)

    def _own_line(
        self, entry: dict[str, Any], text: str, where: str, ids: dict[str, str]
    ) -> Message:
        listed = entry.get("tool_calls") or []
        if not isinstance(listed, list):
            raise Refused(f"{where}.tool_calls: a list of calls")
        parts = [_parts(call, f"{where}.tool_calls[{place}]") for place, call in enumerate(listed)]
        known = self._known.get(_key(text, parts))
        if known is not None:
            line, sampled = known
            ids |= dict(zip((call_id for call_id, _ in parts), sampled, strict=True))
            return line
        calls = [
            read_call(call_id, function.get("name"), function.get("arguments"))
            for call_id, function in parts
        ]
        return Message(text, self.agent, tuple(calls))


def chat_messages(agent: str, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """What is new for an agent, as messages of chat completions. Another agent's line begins with
    its name, so a model reads the same words from a program as from a behaviour of the house."""
    return [_entry(agent, message) for message in messages if message.sender != agent]


def _entry(agent: str, message: Message) -> dict[str, Any]:
    role = message.role(agent)
    text = clean(speaker(agent, message) + message.text)
    content: Any = text
    pictures = [part for part in message.content if isinstance(part, Image)]
    if pictures:
        content = [{"type": "text", "text": text}] if text else []
        content += [{"type": "image_url", "image_url": {"url": _url(part)}} for part in pictures]
    entry = {"role": role, "content": content}
    if role == "tool":
        entry["tool_call_id"] = message.call_id
    return entry


def _url(image: Image) -> str:
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode('ascii')}"


def _call_entry(call_id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    text = json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def _text(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return clean(content)
    texts = []
    for part in content if isinstance(content, list) else [None]:
        text = part.get("text") if isinstance(part, dict) else part
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        if kind not in ("text", "input_text", "output_text") or not isinstance(text, str):
            raise Refused(f"{where}: text, or parts of text; images and sound are not taken here")
        texts.append(text)
    return clean("\n".join(texts))


def _parts(call: Any, where: str) -> tuple[str, dict[str, Any]]:
    """Id and function of a call."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(call.get("id", ""), str):
        raise Refused(f'{where}: {{"id": ..., "type": "function", "function": {{...}}}}')
    return call.get("id", ""), function


def _key(text: str, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> _Key:
    """What tells one line from another, however a library writes its JSON."""
    listed = []
    for call_id, function in calls:
        call = read_call(call_id, function.get("name"), function.get("arguments"))
        same = json.dumps(call.arguments, sort_keys=True) if isinstance(call, ToolCall) else ""
        listed.append((call_id, str(function.get("name")), same))
    return text, tuple(listed)


# A reply -> a chat completion, in one piece or as the events of a stream.
# A stream is sent once the reply is whole: an engine hands over no part of one.

DONE = b"data: [DONE]\n\n"


def completion(
    reply: Reply, message: Mapping[str, Any], name: str, wanted: Wanted
) -> dict[str, Any]:
    """The response that is not streamed. `name` is its id."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": dict(message),
        "finish_reason": _finish(reply, message),
        "logprobs": _logprobs(reply) if wanted.logprobs else None,
    }
    whole = _envelope("chat.completion", reply, name)
    if wanted.ids:
        choice["token_ids"] = list(reply.token_ids)
        whole["prompt_token_ids"] = list(reply.prompt_ids)
    return {**whole, "choices": [choice], "usage": _usage(reply)}


def events(reply: Reply, message: Mapping[str, Any], name: str, wanted: Wanted) -> Iterator[bytes]:
    """The same as server-sent events."""
    whole = completion(reply, message, name, wanted) | {"object": "chat.completion.chunk"}
    usage = whole.pop("usage")
    prompt = {key: whole.pop(key) for key in ("prompt_token_ids",) if key in whole}
    # what is left of the choice is what was sampled: it stands beside the first piece
    (sampled,) = whole.pop("choices")
    finish = sampled.pop("finish_reason")
    del sampled["message"]

    def event(delta: Mapping[str, Any], beside: Mapping[str, Any] = {}, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": None, **more}
        return _line({**whole, **beside, "choices": [choice]})

    calls = message.get("tool_calls", ())
    texts = [key for key in ("content", "reasoning_content") if message.get(key)]
    pieces: list[dict[str, Any]] = [{key: message[key]} for key in texts]
    pieces += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(calls)]
    yield event({"role": "assistant", "content": "" if not calls else None}, prompt)
    for number, piece in enumerate(pieces or [{}]):
        yield event(piece, **({} if number else sampled))
    yield event({}, finish_reason=finish)
    if wanted.usage:
        yield _line({**whole, "choices": [], "usage": usage})
    yield DONE


def _envelope(kind: str, reply: Reply, name: str) -> dict[str, Any]:
    return {"id": name, "object": kind, "created": int(time.time()), "model": reply.policy}


def _line(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode("ascii") + b"\n\n"


def _finish(reply: Reply, message: Mapping[str, Any]) -> str:
    if message.get("tool_calls") and reply.finish == "stop":
        return "tool_calls"
    return reply.finish


def _usage(reply: Reply) -> dict[str, int]:
    prompt = len(reply.prompt_ids) or reply.usage.prompt_tokens or 0
    sampled = reply.sampled or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }


def _logprobs(reply: Reply) -> dict[str, Any] | None:
    """Per sampled id, named as vLLM names ids; None where the engine knows none. A text for each
    would be wrong: ids of one letter are joined to it."""
    if not reply.logprobs or not reply.token_ids:  # an endpoint may tell the one alone
        return None
    pairs = zip(reply.token_ids, reply.logprobs, strict=True)
    return {
        "content": [
            {"token": f"token_id:{token}", "logprob": value, "bytes": None, "top_logprobs": []}
            for token, value in pairs
        ]
    }


WAIT_S = 20.0  # for a seat or a turn, until the client asks again: proxies cut at 30
LOOK_S = 0.25  # between two looks whether the client is still there
LINGER_S = 2.0  # for programs that were told last
Body = Mapping[str, Any]
Gone = Callable[[], bool]
Result = TypeVar("Result")


class Routes:
    """The answers of one server, which clients reach at `address`."""

    def __init__(self, desk: Desk, address: str) -> None:
        self.desk = desk
        self.address = address
        self._sayings: WeakKeyDictionary[Program, Sayings] = WeakKeyDictionary()
        # replies that were sampled in a turn and reached nobody, by what was asked
        self._unheard: WeakKeyDictionary[Program, list[tuple[Any, Reply]]] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._running = 0

    def answer(
        self, method: str, path: str, body: Body, *, gone: Gone
    ) -> dict[str, Any] | Iterable[bytes]:
        """An object, or the events of a stream. `gone` tells whether the client still waits.
        Raises Refused."""
        with self._counted():
            parts = [part for part in urlsplit(path).path.split("/") if part]
            if parts == ["episodes"]:
                self._only(method, "POST")
                return self._take(body, gone)
            if len(parts) < 2 or parts[0] != "episode":
                raise Refused("begin with POST /episodes", status=404, code="not_found")
            program = self.desk.find(parts[1])
            if program is None:
                raise Refused(
                    "no play has this key, or it has been over for long",
                    status=404,
                    code="not_found",
                )
            return self._of(program, method, parts[2:], body, gone)

    def drain(self) -> None:
        """Waits a moment for those who are being answered."""
        deadline = time.monotonic() + LINGER_S
        while self._running and time.monotonic() < deadline:
            time.sleep(0.02)

    def _of(
        self, program: Program, method: str, rest: list[str], body: Body, gone: Gone
    ) -> dict[str, Any] | Iterable[bytes]:
        if not rest and method == "DELETE":
            reason = clean(str(body.get("reason", "")))[:500]
            self._on(program, program.leave(reason), gone)
            return {}
        if not rest:
            self._only(method, "GET")
            return self._news(program, gone)
        if rest == ["act"]:
            self._only(method, "POST")
            return self._act(program, body, gone)
        if rest == ["v1", "models"]:
            self._only(method, "GET")
            model = {"id": program.agent, "object": "model", "owned_by": "gem_ma", "created": 0}
            return {"object": "list", "data": [model]}
        if rest == ["v1", "chat", "completions"]:
            self._only(method, "POST")
            return self._complete(program, body, gone)
        raise Refused(
            f"{'/'.join(rest)}: only v1/chat/completions is served; tell your library to use chat"
            " completions",
            status=404,
            code="not_found",
        )

    def _take(self, body: Body, gone: Gone) -> dict[str, Any]:
        agent = body.get("agent")
        deadline = time.monotonic() + WAIT_S
        if not isinstance(agent, (str, type(None))):
            raise Refused("agent: the name of an agent, or nothing", param="agent")
        seats = self.desk.agents
        if agent is not None and not any(fnmatchcase(agent, seat) for seat in seats):
            raise Refused(f"agent: {agent!r} is not served; {', '.join(seats)} is", param="agent")
        while not gone():
            program = self.desk.take(agent, LOOK_S)
            if program is not None and gone():
                self.desk.give_back(program)
                break
            if program is not None:
                base = f"{self.address}/episode/{program.key}"
                seat = {"episode": program.key, "agent": program.agent, "base_url": f"{base}/v1"}
                return seat | self._news(program, gone)
            if self.desk.closed:
                raise Refused("all is played", status=410, code="over")
            if time.monotonic() > deadline:
                break
        raise Refused("no seat is free now; ask again", status=503, code="busy")

    def _news(self, program: Program, gone: Gone) -> dict[str, Any]:
        news: News | Ending | None = program.end
        if news is None:
            try:
                news = self._on(program, program.news(WAIT_S), gone)
            except Refused:  # with the last play the loop ends, and with it who waits there
                if program.end is None:
                    raise
                news = program.end
        if isinstance(news, Ending):
            return {"state": "over", **news._asdict()}
        if news is None:
            return {"state": "wait"}
        return {
            "state": "turn",
            "turn": news.turn,
            "messages": chat_messages(program.agent, news.asked.new),
            "tools": [tool.schema for tool in news.asked.tools],
            "legal": None if news.asked.legal is None else list(news.asked.legal),
        }

    def _act(self, program: Program, body: Body, gone: Gone) -> dict[str, Any]:
        turn = body.get("turn")
        if type(turn) is not int:
            raise Refused("turn: the number of the turn that is answered", param="turn")
        with self._lock:
            action = self._of_program(program).action(body.get("message"), program.legal)
        if program.end is None:
            self._on(program, program.answer(turn, action), gone)
        elif not program.is_last(turn, action):
            raise Refused(program.how(), status=410, code="over")
        return self._news(program, gone)

    def _complete(
        self, program: Program, body: Body, gone: Gone
    ) -> dict[str, Any] | Iterable[bytes]:
        if program.sampling is None:
            raise Refused(
                f"agent {program.agent!r} has no policy; name one in the config:"
                f" agents.{in_quotes(program.agent)}.policy",
                status=404,
                code="model_not_found",
            )
        what = wanted(body, program.sampling, program.legal)
        for name in what.ignored:
            self.desk.note(f"serve: chat completions: {name!r} means nothing here and is ignored")
        with self._lock:
            sayings = self._of_program(program)
            messages = sayings.read(body.get("messages"))
            how: dict[str, Any] = {
                "tools": what.tools,
                "legal": what.legal,
                "thread": sayings.thread(messages),
            }
            how |= what.options
            asked = program.turn, messages, how
            reply = self._heard_again(program, asked)
        if reply is None:
            reply = self._on(program, program.call(messages, **how), gone)
            if gone():
                with self._lock:
                    self._unheard.setdefault(program, []).append((asked, reply))
                raise Refused("nobody waits for the answer", status=499)
        with self._lock:
            message = sayings.written(reply)
            name = f"chatcmpl-{program.key}-{sayings.replies}"
        if what.stream:
            return events(reply, message, name, what)
        return completion(reply, message, name, what)

    def _heard_again(self, program: Program, asked: Any) -> Reply | None:
        """The reply to the same request, if its client was gone when it came: libraries send again
        what took too long, and to sample anew would put a draft on record that nobody read."""
        if program.asked is None:  # the turn is over: refused like any other
            return None
        kept = [pair for pair in self._unheard.pop(program, ()) if pair[0][0] == program.turn]
        match = next((pair for pair in kept if pair[0] == asked), None)
        if rest := [pair for pair in kept if pair is not match]:
            self._unheard[program] = rest
        return match and match[1]

    def _of_program(self, program: Program) -> Sayings:
        return self._sayings.setdefault(program, Sayings(program.agent))

    def _on(self, program: Program, work: Coroutine[Any, Any, Result], gone: Gone) -> Result:
        """The result of a coroutine on the play's own loop. Raises Refused."""
        try:
            future: Future[Result] = asyncio.run_coroutine_threadsafe(work, program.loop)
        except RuntimeError:  # the loop is closed: the run was stopped
            work.close()
            raise Refused("the run was stopped", status=410, code="over") from None
        try:
            return _waited(future, gone, program.loop)
        except OverError as error:
            raise Refused(str(error), status=410, code="over") from None
        except ProtocolFault as error:
            raise Refused(str(error), status=409, code="conflict") from None
        except CancelledError:
            raise Refused("the turn is over", status=409, code="conflict") from None
        except Exception as error:
            raise _failed(error) from None

    @contextmanager
    def _counted(self) -> Any:
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def _only(self, method: str, allowed: str) -> None:
        if method != allowed:
            raise Refused(f"{method} is not served here; send {allowed}", status=405)


def _waited(future: Future[Result], gone: Gone, loop: asyncio.AbstractEventLoop) -> Result:
    while True:
        try:
            return future.result(LOOK_S)
        except NotYet:
            # raised by the work itself it is an answer
            if future.done():
                raise
        if gone() or loop.is_closed():
            future.cancel()
            raise Refused("nobody waits for the answer", status=499)


def _failed(error: Exception) -> Refused:
    """A model call that raised: the play has failed with it, or was cut."""
    if isinstance(error, Cut):
        return Refused(
            "the prompt is too long for the model, so the play is cut",
            code="context_length_exceeded",
        )
    text = clean(str(error)).split("\n", 1)[0] if isinstance(error, GemMaError) else ""
    return Refused(
        f"the model call failed, and the play with it: {type(error).__name__} {text}".rstrip(),
        status=500,
        code="server_error",
    )

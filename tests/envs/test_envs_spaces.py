"""Chat spaces and the form of observations."""

from __future__ import annotations

import copy

import gymnasium
import pytest

import gem_ma
from gem_ma import Image, Malformed, Message, ToolCall
from gem_ma.envs import to_chat
from gem_ma.envs.observation import encode
from gem_ma.envs.spaces import ChatText, observation_space


def test_any_text_is_a_member_and_nothing_else():
    space = ChatText()
    assert all(space.contains(text) for text in ("", "é😀", "\ud800", "\x00", "a" * 10**6))
    assert not any(space.contains(other) for other in (None, 3, b"a", ["a"]))
    assert not ChatText(3).contains("four") and not ChatText(min_length=1).contains("")


def test_sampling_is_short_seeded_and_keeps_to_a_mask_of_any_length():
    space = ChatText(seed=1)
    assert all(len(space.sample()) <= 32 for _ in range(50))
    for mask in (("yes",), ("yes", "no"), ("a", "b", "c"), ["a", "b"]):
        assert {space.sample(mask) for _ in range(60)} == set(mask)
    with pytest.raises(ValueError, match="empty"):
        space.sample(())
    one, two = ChatText(seed=5), ChatText(seed=5)
    assert [one.sample() for _ in range(5)] == [two.sample() for _ in range(5)]
    assert len(ChatText(100, min_length=40, seed=0).sample()) == 40
    assert len(ChatText(4, seed=0).sample()) <= 4


def test_spaces_compare_by_their_bounds_and_survive_a_copy():
    assert ChatText() == copy.deepcopy(ChatText()) != ChatText(5)
    assert repr(ChatText(5)) == "ChatText(0, 5)"
    space = observation_space()
    assert space == observation_space()
    assert space.contains(space.sample())
    assert space.contains({"messages": ()})


def shown(message, observer="ann"):
    observation = {"messages": (encode(message, observer),)}
    assert observation_space().contains(observation)
    return to_chat(observation)[0]


def test_roles_depend_on_who_looks():
    assert shown(Message("hi", "ann")) == {"role": "assistant", "content": "hi"}
    assert shown(Message("hi", "bob")) == {"role": "user", "name": "bob", "content": "hi"}
    assert shown(Message("hi")) == {"role": "user", "content": "hi"}
    assert shown(Message.system("hi")) == {"role": "system", "content": "hi"}
    assert shown(Message.tool("7", "hi")) == {"role": "tool", "content": "hi", "tool_call_id": "7"}
    assert shown(Message("hi", "user"), "user")["role"] == "assistant"


def test_tool_calls_are_decoded_and_unreadable_ones_go_back_into_the_text():
    call, bad = ToolCall("1", "find", {"é": [1, None]}), Malformed("{oops", "bad_json: ...")
    said = shown(Message("so ", "ann", (call, bad)))
    assert said["tool_calls"] == [
        {"id": "1", "type": "function", "function": {"name": "find", "arguments": {"é": [1, None]}}}
    ]
    assert said["content"] == "so {oops"


def test_parts_travel_as_json_and_nobody_can_speak_an_image():
    image = Image.of(b"abc", "image/jpeg")
    parts = shown(Message(("look", image)))["content"]
    assert parts == [
        {"type": "text", "text": "look"},
        {"type": "image", "digest": image.digest, "media_type": "image/jpeg", "data": "YWJj"},
    ]
    forged = encode(Message(("", image)), "ann")["content"]
    assert shown(Message(forged, "bob"))["content"] == [{"type": "text", "text": forged}]
    assert shown(Message('[{"a": 1}]'))["content"] == '[{"a": 1}]'
    assert shown(Message(()))["content"] == [{"type": "text", "text": ""}]


@pytest.mark.parametrize("function", ["flatdim", "flatten_space", "flatten", "unflatten"])
@pytest.mark.parametrize("space", [ChatText(), ChatText(5)])
def test_flattening_refuses_before_it_asks_for_memory(function, space):
    arguments = ("text",) if function in ("flatten", "unflatten") else ()
    with pytest.raises(TypeError, match="a chat observation has no flat form"):
        getattr(gymnasium.spaces.utils, function)(space, *arguments)


def test_the_wrapper_that_flattens_is_refused():
    env = gem_ma.gym_env("kuhn_poker", agent="player_0", others={"player_1": "random_legal"})
    with pytest.raises(TypeError, match="no flat form"):
        gymnasium.wrappers.FlattenObservation(env)


def test_a_vector_that_shares_memory_says_what_to_type_before_it_asks_for_memory():
    chosen = {"num_envs": 2, "vectorization_mode": "async", "obs": "text"}
    with pytest.raises(ValueError, match="shared_memory=False"):
        gymnasium.make_vec("gem_ma/guess_number-v1", **chosen)

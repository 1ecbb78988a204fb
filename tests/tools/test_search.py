"""The tool `search`: a folder by words, a folder by meaning, and a server, whatever it answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from gem_ma import Action, Game, ToolCall, make
from gem_ma.kernel.errors import ConfigError
from gem_ma.tools import retriever
from gem_ma.tools.belt import WithTools
from gem_ma.tools.passages import Index, Passage
from gem_ma.tools.retriever import Retriever, RetrieverError
from gem_ma.tools.search import Search
from tests.fault_server import Answer, Asked, FaultServer, drop, hang, raw, status

KEY = "rk-Canary7f3a9bD41c"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retriever, "WAIT_S", 0.01)


def asked(tool: Search, query: str = "Elbe") -> str:
    """What an agent is shown of its query."""
    inner = make("guess_number")
    agent = inner.agents[0]
    game = Game(WithTools(inner, {agent: [tool]}))
    game.send({agent: Action("", tool_calls=(ToolCall("c", "search", {"query": query}),))})
    assert not game.over
    return game.view(agent)[-1].text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "more").mkdir()
    (tmp_path / "rivers.md").write_text("The Rhine is long.\n\nThe Elbe ends in the sea.\n")
    (tmp_path / "more" / "cats.txt").write_text("A cat sleeps, a cat eats.\n" + "\n\nword" * 400)
    (tmp_path / "picture.png").write_bytes(b"Elbe")
    (tmp_path / "link.txt").symlink_to(__file__)
    return tmp_path


# -- by words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "file"),
    [("ELBE?", "rivers.md"), ("what does a cat eat", "more/cats.txt"), ("fixture", "No passage")],
)
def test_a_search_gives_the_passage_that_holds_the_words(
    folder: Path, query: str, file: str
) -> None:
    text = asked(Search(str(folder), results=1), query)
    assert file in text.split("\n")[0]
    assert len(text) < 5_000


@pytest.mark.parametrize("mark", [" ", "\n", ""])
def test_what_stands_deep_in_a_long_paragraph_is_shown(tmp_path: Path, mark: str) -> None:
    line = f"sand{mark}" * 5_000
    (tmp_path / "dunes.txt").write_text(f"{line} oasis {line}")
    assert "oasis" in asked(Search(str(tmp_path), results=1), "oasis")


@pytest.mark.parametrize(
    "query", ["河流", "猫", "ネコ", "แมว", "고양이", "नदी", "نهر", "café", "ABC123", "Größe"]
)
def test_a_word_of_any_script_is_found(tmp_path: Path, query: str) -> None:
    texts = {
        "chinese": "长江是亚洲最长的河流。",
        "japanese": "猫は眠っている。",
        "kana": "あのネコは白い",
        "thai": "แม่น้ำโขงยาวมาก แมวนอนหลับ",
        "korean": "고양이가 잔다",
        "hindi": "गंगा एक नदी है",
        "arabic": "النيل أطول نهر في العالم",
        "marks": "two cafe\u0301s, one cafe\u0301",
        "wide": "ＡＢＣ１２３",
        "german": "GRÖSSE",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "other.TXT").write_text("二十一 犬 개 แ")
    shown = asked(Search(str(tmp_path), results=1), query)
    name = shown[1:].partition(".")[0]
    assert query in normalize("NFKC", texts[name]) or name == "german"


def test_a_text_that_stands_in_many_files_is_given_once(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("the Elbe\r\nends")
    (tmp_path / "a\nb.txt").write_bytes("Elbe, sea".encode("utf-16"))
    shown = asked(Search(str(tmp_path), results=9), "Elbe sea")
    assert shown == "[a?b.txt]\nElbe, sea\n\n[0.txt]\nthe Elbe\nends"


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", r"the files of .* are empty"),
        (b"\x7fELF\0\0", r"not text in UTF-8 \(1 of 2, the first is a\.txt\)"),
        ("Größe".encode("latin-1"), r"not text in UTF-8 \(1 of 2, the first is a\.txt\)"),
    ],
)
def test_files_that_are_no_text_are_one_line(tmp_path: Path, data: bytes, fault: str) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "b.txt").write_text("" if not data else "sound")
    with pytest.raises(ConfigError, match=fault):
        Search(str(tmp_path))


def test_what_cannot_be_opened_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a")

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigError, match=r"search: .*a\.txt: Permission denied"):
        Search(str(tmp_path))


def test_a_query_that_is_no_text_is_said(folder: Path) -> None:
    for query in (None, 5, ["Elbe"]):
        assert asked(Search(str(folder)), query) == "Error: TypeError: query is a text"  # type: ignore[arg-type]


def test_paragraphs_go_together_up_to_a_length_or_stand_alone(tmp_path: Path) -> None:
    (tmp_path / "desks.txt").write_text("Ann has desk 3.\n\nBen has desk 4.\n\n\nAnn eats.\n")
    assert asked(Search(str(tmp_path)), "Ben").count("desk") == 3  # the file, and two facts
    alone = Search(str(tmp_path), passage_chars=1, results=1)
    assert asked(alone, "Ann desk") == "[desks.txt]\nAnn has desk 3."
    assert [*alone.texts()][2] == "[desks.txt]\nAnn eats."


def test_rare_words_weigh_more_and_long_passages_less() -> None:
    texts = ["a b", "a c", "a d", "c " + "x " * 50, "c"]
    index = Index([Passage(str(number), text) for number, text in enumerate(texts)])
    assert [passage.file for passage in index.best("a b", 2)] == ["0", "1"]
    assert [passage.file for passage in index.best("c", 9)] == ["4", "1", "3"]
    assert index.best("", 3) == index.best("zzz", 3) == []


# -- by a server ----------------------------------------------------------------------------------


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RETRIEVER_KEY", KEY)
    return KEY


def result(*entries: Any) -> Answer:
    return raw(json.dumps({"result": [list(entries)]}).encode())


def served(answers: Any, **options: Any) -> tuple[str, list[Asked]]:
    """What an agent is shown of these answers, and what the server was asked."""
    with FaultServer(answers) as server:
        address = server.url.removesuffix("/v1")
        text = asked(Search(url=f"{address}/retrieve", **({"timeout_s": 2.0} | options)))
        return text, server.asked


def test_a_server_is_asked_and_answers_in_the_shape_of_search_r1(key: str) -> None:
    entries = (
        {"document": {"id": "7", "contents": '"Elbe"\nA river.'}, "score": 0.9},
        {"id": "8", "text": "No title."},  # without scores
        {"document": {"contents": "beyond what was asked for"}},
    )
    text, (request,) = served([result(*entries)], results=2, api_key_env="RETRIEVER_KEY")
    assert text == "[Elbe]\nA river.\n\n[8]\nNo title."
    assert request.path == "/retrieve"
    assert request.body == {"queries": ["Elbe"], "topk": 2, "return_scores": True}
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_nothing_is_found_and_no_key_is_sent_where_none_is_named() -> None:
    text, (request,) = served([result()])
    assert text == "No passage fits this query." and "authorization" not in request.headers


GOOD = result({"document": {"contents": "a"}, "score": 1})
BAD = {
    "an error": (status(400, "too long"), "answered 400: .*too long"),
    "a redirect": (Answer(302, b"", headers={"location": "http://127.0.0.1:1/"}), "answered 302"),
    "a page": (raw(b"<html>", "text/html"), "is not JSON"),
    "half a body": (raw(GOOD.body, promised=999, then="drop"), "gave no answer"),
    "another shape": (raw(b'{"results": []}'), "no list of passages"),
    "no list": (raw(b'{"result": [{"a": 1}]}'), "no list of passages"),
    "no text": (result({"document": {"score": 1}}), "without `contents`"),
    "depth": (raw(b"[" * 100_000), "is not JSON"),
    "silence": (hang(), r"no answer within 0\.5 s"),
    "a drip": (raw(GOOD.body, drip_s=0.2), r"no answer within 0\.5 s"),
    "a long body": (raw(b" " * ((8 << 20) + 2)), f"longer than {8 << 20} bytes"),
    "a dead server": (drop(), "gave no answer"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_fault_of_the_server_is_one_line_that_its_agent_is_shown(name: str) -> None:
    answer, text = BAD[name]
    patient = {"timeout_s": 20.0} if name == "a long body" else {"timeout_s": 0.5}
    shown, _ = served([answer], **patient)
    assert re.search(text, shown), shown
    assert shown.startswith("Error: RetrieverError: the retriever") and "\n" not in shown


def test_a_server_that_is_busy_is_asked_again() -> None:
    text, requests = served([status(503), drop(), GOOD])
    assert text == "[]\na" and len(requests) == 3
    text, requests = served([status(503)])
    assert "answered 503" in text and len(requests) == retriever.TRIES
    assert len(served([status(404)])[1]) == len(served([hang()], timeout_s=0.3)[1]) == 1


def test_a_server_that_is_not_there_is_a_line_too() -> None:
    with FaultServer([GOOD]) as server:
        url = server.url
    with pytest.raises(RetrieverError, match="ConnectionRefusedError"):
        Retriever(url).best("a", 1)


@pytest.mark.parametrize(
    "answer",
    [
        result({"document": {"contents": f"{KEY} \n{KEY}", "title": f"a {KEY} b"}}),
        result({"contents": f'"{KEY}"\n' + json.dumps(KEY)}),
        status(401, f"wrong key {KEY}"),
        Answer(500, b"x" * 180 + f" {KEY} ".encode() + b"x" * 5000),
        Answer(500, b"x" * 1590 + f" {KEY}".encode()),
        raw(KEY.encode()),
        Answer(200, GOOD.body, headers={KEY: KEY}, promised=9_999, then="drop"),
    ],
)
def test_a_key_that_the_server_repeats_is_shown_to_nobody(key: str, answer: Answer) -> None:
    text, _ = served([answer], api_key_env="RETRIEVER_KEY")
    assert KEY[:9] not in text


def test_odd_letters_of_a_server_pass_into_the_record() -> None:
    text, _ = served([raw(b'{"result": [[{"contents": "a\\ud800\\u0000b"}]]}')])
    assert text.startswith("[]\na") and text.isprintable() is False
    text.encode("utf-8")


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "wants a folder"),
        ({"folder": ""}, "wants a folder"),
        ({"folder": "x", "url": "http://127.0.0.1:1"}, "wants a folder"),
        ({"model": "x", "url": "http://127.0.0.1:1"}, "wants a folder"),
        ({"url": "127.0.0.1:8000"}, "search: url is an address"),
        ({"url": "http://a:b@127.0.0.1:1/"}, "no user, password"),
        ({"url": "http://127.0.0.1:1", "api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY is not set"),
    ],
)
def test_what_cannot_be_searched_is_one_line(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as refused:
        Search(**options)
    assert "\n" not in str(refused.value)


# -- by meaning -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An untrained BERT of a few words, as sentence-transformers lays one down."""
    torch = pytest.importorskip("torch", reason="needs the train extra")
    transformers = pytest.importorskip("transformers", reason="needs the train extra")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", "a", "cat", "sleeps", "river", "ends", "sea", "query:"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    torch.manual_seed(0)
    shape = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    path = tmp_path_factory.mktemp("embedding")
    transformers.BertModel(shape).save_pretrained(path)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(path)
    yield path


def test_the_passage_of_the_same_words_is_the_nearest(tmp_path: Path, model: Path) -> None:
    (tmp_path / "cats.txt").write_text("a cat sleeps")
    (tmp_path / "rivers.txt").write_text("a river ends")
    search = Search(str(tmp_path), model=str(model), results=1)
    assert asked(search, "a river ends") == "[rivers.txt]\na river ends"
    assert asked(search, "a cat sleeps") == "[cats.txt]\na cat sleeps"


def test_a_vector_is_the_mean_of_its_own_tokens_whatever_stands_beside(model: Path) -> None:
    import torch
    import transformers

    from gem_ma.tools.search import Embedder

    texts = ["a cat", "a river ends sea a cat sleeps"]
    together = Embedder(model).vectors(texts, "passage")
    bare = transformers.AutoModel.from_pretrained(model).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    for row, text in zip(together, texts, strict=True):
        with torch.no_grad():
            inputs = tokenizer(text, return_tensors="pt")
            mean = bare(**inputs).last_hidden_state[0].mean(0)
        assert torch.allclose(row, mean / mean.norm(), atol=1e-5)


@pytest.mark.long
def test_a_folder_says_how_it_pools_and_what_stands_before_a_query(
    model: Path, tmp_path: Path
) -> None:
    import shutil

    from gem_ma.tools.search import Embedder

    plain = Embedder(model).vectors(["a cat"], "query")
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    (folder / "1_Pooling").mkdir()
    pooling = folder / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({"pooling_mode_cls_token": True}))
    assert not Embedder(folder).vectors(["a cat"], "query").equal(plain)
    pooling.write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    prompts = {"prompts": {"query": "query: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    assert Embedder(folder).vectors(["a cat"], "passage").equal(plain)
    expected = Embedder(model).vectors(["query: a cat"], "query")
    assert Embedder(folder).vectors(["a cat"], "query").equal(expected)
    pooling.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(ConfigError, match="pools in another way"):
        Embedder(folder)


def test_a_folder_that_is_no_model_is_one_line(tmp_path: Path, model: Path) -> None:
    import shutil

    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("a")
    with pytest.raises(ConfigError, match="not a folder of an embedding model"):
        Search(str(texts), model=str(texts))
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    tokenizer = (folder / "tokenizer.json").read_text()
    other = json.loads(tokenizer)
    other["model"]["vocab"]["sea"] = 777
    (folder / "tokenizer.json").write_text(json.dumps(other))
    with pytest.raises(ConfigError, match="its tokenizer knows words that the model does not"):
        Search(str(texts), model=str(folder))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="holds no tokenizer"):
        Search(str(texts), model=str(folder))
    (folder / "tokenizer.json").write_text(tokenizer)
    (folder / "model.safetensors").write_bytes(b"no")
    with pytest.raises(ConfigError, match="cannot be read as a model") as refused:
        Search(str(texts), model=str(folder))
    assert "\n" not in str(refused.value)

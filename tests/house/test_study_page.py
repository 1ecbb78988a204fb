"""The page of a study in the viewer: its tables and figures, and ways to the runs of its cells."""

from __future__ import annotations

import itertools
import json
import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from gem_ma.pages.live.site import Site
from tests.command_line import gem_ma
from tests.hostile import STUDY
from tests.payloads import PAYLOADS, held


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("studied")
    (home / "study.yaml").write_text(STUDY, "utf-8")
    done = gem_ma("study", "study.yaml", "--out", "runs/of two", "--quiet", cwd=home)
    assert done.returncode == 0, done.stderr
    return home / "runs"


def shown(site: Site, path: str) -> str:
    answer = site.answer(path, {})
    assert (answer.status, answer.kind[:9]) == (200, "text/html")
    return answer.body.decode()


def links(page: str) -> list[str]:
    return [unescape(link) for link in re.findall(r'<a href="(/[^"]*)"', page)]


def summary(runs: Path) -> dict[str, Any]:
    return dict(json.loads((runs / "of two" / "study.json").read_text("utf-8")))


def test_the_page_has_what_the_report_has_and_leads_to_each_cell(runs: Path) -> None:
    site = Site(runs)
    assert "/study/of%20two" in links(shown(site, "/"))
    page, report = shown(site, "/study/of two"), (runs / "of two" / "report.html").read_text()
    numbers = re.compile(r'<span class="interval">([^<]*)</span>')
    assert numbers.findall(report) and set(numbers.findall(report)) <= set(numbers.findall(page))
    assert page.count("<svg") == report.count("<svg")
    there = links(page)
    for cell in summary(runs)["cells"]:
        assert f"/run/of%20two/{cell['run']}" in there
    for link in there:
        parts = urlsplit(link)
        query = parse_qsl(parts.query)
        picked = [value for key, value in query if key == "run"]
        answer = site.answer(unquote(parts.path), dict(query), picked)
        assert answer.status == 200 and b'<section><p class="warn">' not in answer.body, link


def test_a_study_is_viewed_by_itself_and_not_beside_a_single_run(runs: Path) -> None:
    alone = Site(runs / "of two")
    assert "/study/" in links(shown(alone, "/"))
    cell = summary(runs)["cells"][0]["run"]
    assert f"/run/{cell}" in links(shown(alone, "/study/"))
    single = Site(runs, ("x",))
    assert "/study" not in " ".join(links(shown(single, "/")))
    assert "no such study" in shown(single, "/study/of two")


@pytest.mark.parametrize("path", ["/study/gone", "/study/..", "/study/of two/x", "/study/"])
def test_what_is_no_study_is_one_line(runs: Path, path: str) -> None:
    assert (
        len(re.findall(r'<p class="warn">[^<\n]*no such study</p>', shown(Site(runs), path))) == 1
    )


@pytest.mark.long
def test_a_damaged_or_hostile_summary_is_a_line_or_a_text(runs: Path, tmp_path: Path) -> None:
    whole, file = summary(runs), tmp_path / "s" / "study.json"
    file.parent.mkdir()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "manifest.json").write_text('{"command": "secret"}', "utf-8")
    (file.parent / "c").symlink_to(tmp_path / "c")
    for wrong in ([], {}, 1, {**whole, "cells": 1}, {**whole, "compared": ["x"]}):
        file.write_text(json.dumps(wrong), "utf-8")
        assert "damaged" in shown(Site(tmp_path), "/study/s"), wrong
    for payload in PAYLOADS:
        first, second = (held(payload, which) for which in ("one", "two"))
        renamed = json.dumps(whole).replace("loyal", "ONE").replace("random", "TWO")
        renamed = renamed.replace('"ONE"', json.dumps(first)).replace('"TWO"', json.dumps(second))
        hostile, runs_named = json.loads(renamed), itertools.cycle(("../c", "c", payload))
        for cell in hostile["cells"]:
            cell["run"] = next(runs_named)
        file.write_text(json.dumps(hostile), "utf-8")
        page = shown(Site(tmp_path), "/study/s")
        assert "damaged" not in page and "secret" not in page
        body = page[page.index("<body>") : page.index('<script type="application/json"')]
        assert not re.search(r"<(script|img|iframe|svg onload|base|meta|object|embed)\b", body)
        # of these runs the folder lists none
        assert {*links(body)} == {"/"}

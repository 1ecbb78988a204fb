"""The page of a study: its tables and figures as `gem-ma study` drew them, with links to the runs
of its cells and to the plays in which a cell differs from the reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gem_ma.config.settings import StudyReportSettings
from gem_ma.kernel.errors import GemMaError, StoreError
from gem_ma.pages.live.answers import (
    Answer,
    Asked,
    html,
    link,
    meant,
    page_address,
    refused,
    run_address,
)
from gem_ma.pages.static.page import Html, render
from gem_ma.pages.static.report import sections_page
from gem_ma.pages.static.study import study_facts, study_lead, study_sections
from gem_ma.runs.store.listing import STUDY, find_studies, since_compared
from gem_ma.system import files

if TYPE_CHECKING:
    from gem_ma.pages.live.site import Site


def study_address(name: str) -> str:
    return "/study/" + quote(name, safe="", errors="replace")


def study_page(site: Site, asked: Asked) -> Answer:
    """`/study/NAME`, or `/study/` where the folder that is viewed is one."""
    name = "/".join(asked.rest)
    try:
        # where single runs are named, no study is offered
        there = {} if site.only else find_studies(site.root)
        study = meant(name, there)
        if study not in there or bool(name) != bool(study):
            raise StoreError(f"{name}: no such study")
        name = study
        place = there[study]
        with files.damage(place / STUDY):
            return html(_page(place, name, files.read_json(place / STUDY, site.root)))
    except GemMaError as error:
        return refused("Study", error)


def _page(place: Path, name: str, stored: Mapping[str, Any]) -> str:
    # what stands in a file is a run only where the folder lists it
    runs = {run for run in files.names(place) if files.kind(place / run, place) == "a folder"}
    cells = [{**cell, "run": cell["run"] * (cell["run"] in runs)} for cell in stored["cells"]]
    summary = {**stored, "cells": cells}
    named = {tuple(cell["names"].values()): cell["run"] for cell in cells}
    reference = named.get(tuple(summary["reference"].values()), "")

    def path_of(run: str) -> str:
        return f"{name}/{run}" if name else run

    def way(run: str) -> Html:
        """The run of a cell, and its plays against those of the reference."""
        if not run:
            return Html("")
        leads = link("episodes", run_address(path_of(run)))
        if not reference or run == reference:
            return leads
        pair = (path_of(reference), path_of(run))
        return Html(f"{leads}, {link('flips', page_address('compare', pair))}")

    settings = StudyReportSettings()  # all there is
    sections = study_sections(place, summary, settings.tables, settings.plots, way)
    warnings = [line] if (line := since_compared(place, stored)) else []
    head = Html(render("ways", links={}, warnings=warnings) + study_lead(summary))
    foot = "Read by gem-ma view as it stands now."
    facts = study_facts(place, summary)
    return sections_page(str(summary["name"]), sections, head, foot, facts)

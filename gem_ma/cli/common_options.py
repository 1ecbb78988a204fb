"""Options that several commands have, each written once."""

from __future__ import annotations

import click

json_option = click.option(
    "--json", "as_json", is_flag=True, envvar="GEM_MA_JSON", help="Print one JSON object."
)
quiet_option = click.option("--quiet", is_flag=True, envvar="GEM_MA_QUIET", help="No progress.")
concurrency_option = click.option(
    "-j", "--concurrency", type=click.IntRange(min=1), help="Episodes at once."
)
tasks_option = click.option(
    "-n",
    "--tasks",
    type=click.IntRange(min=1),
    help="How many tasks (or seeds, where the scenario has one task).",
)
base_url_option = click.option(
    "--base-url",
    "base_urls",
    multiple=True,
    metavar="[AGENT=]URL",
    help=(
        "Where models of openai/ are, as http://127.0.0.1:8000/v1: in all seats, or in one."
        "  [default: OPENAI_BASE_URL, else OpenAI itself]"
    ),
)
out_option = click.option(
    "--out", type=click.Path(), help="The run folder.  [default: runs/<config>-<digest>]"
)
fresh_option = click.option(
    "--fresh", is_flag=True, help="Put an old run folder aside and start anew."
)

"""A chat template is somebody else's program; here it gets a budget. Loops, calls and the
characters that it makes each take from it.

Jinja's sandbox keeps a template from files and attributes, not from endless loops or `'a' *
10**10`. So a template is compiled with counters (`template_environment`): every loop pays for what
it walks over, every call for being made, every text and list for its length (`template_budget`). A
template that fits the budget renders as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gem_ma.engines.local.template_budget import refill
from gem_ma.engines.local.template_environment import COMPILED, compile_guarded


def guard(template: Any) -> None:
    """From now on this template (a text, or several by name) is rendered on a budget, through
    `apply_chat_template` of any tokenizer."""
    # imported here: engines without templates need neither jinja2 nor transformers
    from jinja2 import TemplateError

    for source in template.values() if isinstance(template, Mapping) else (template,):
        if isinstance(source, str) and source not in COMPILED:
            refill()  # constants in a template are computed as it is compiled
            with suppress(TemplateError):  # a broken one is refused where it is rendered
                compile_guarded(source)

"""Tasks about settings and scripts: text that is replaced in many files, a script that is mended or
written. What runs such a script is `run`, which knows its arguments and not what it should say."""

from __future__ import annotations

import random
from collections.abc import Callable

from gem_ma.scenarios.terminal.drafts import NAMES, Draft, holds, paths, some


def replace_everywhere(rng: random.Random) -> Draft:
    old, new, *others = some(rng, NAMES, 6, 6)
    before = {
        f"site/{rng.choice(others)}/{place}.conf": f"host = {rng.choice((old, *others))}\n"
        f"backup = {rng.choice((old, others[0]))}.{place}\n"
        for place in range(12)
    }
    before["site/readme.txt"] = f"The old host is {old}.\n"
    after = {p: t.replace(old, new) if p.endswith(".conf") else t for p, t in before.items()}
    return Draft(
        f"Replace {old} by {new} in all .conf files below the folder site. Change nothing else.",
        before,
        [paths([path[5:] for path in after], "site"), *(holds(p, t) for p, t in after.items())],
        f"find site -name '*.conf' -exec sed -i 's/{old}/{new}/g' {{}} +",
    )


def change_setting(rng: random.Random) -> Draft:
    keys = some(rng, NAMES, 8, 12)
    values = {key: rng.randint(1000, 9999) for key in keys}
    key = rng.choice(keys)
    value = rng.randint(10_000, 99_999)
    text = "# settings\n" + "".join(f"{name}={number}\n" for name, number in values.items())
    after = text.replace(f"\n{key}={values[key]}\n", f"\n{key}={value}\n")
    return Draft(
        f"Set {key} to {value} in app.conf, and leave all other lines as they are.",
        {"app.conf": text},
        [holds("app.conf", after), paths(["app.conf"])],
        f"sed -i 's/^{key}=.*/{key}={value}/' app.conf",
    )


def settings_without_comments(rng: random.Random) -> Draft:
    lines = []
    for name in some(rng, NAMES, 9, 14):
        lines.append(rng.choice((f"# about {name}", "", f"{name} = {rng.randint(10, 99)}")))
        lines.append(f"{name}_size = {rng.randint(10, 99)}")
    text = "\n".join(line for line in lines if line and not line.startswith("#"))
    return Draft(
        "Write app.conf to clean.conf without empty lines and without lines that begin with #.",
        {"app.conf": "\n".join(lines) + "\n"},
        [holds("clean.conf", text), holds("app.conf", "\n".join(lines))],
        "grep -v -e '^#' -e '^$' app.conf > clean.conf",
    )


FUNCTIONS: dict[str, Callable[[list[int]], int]] = {"sum": sum, "largest": max, "count": len}


def _results(function: str, calls: list[list[int]]) -> list[str]:
    """Parts of a check: what a script printed for these arguments, each call in a file."""
    values = [FUNCTIONS[function](args) for args in calls]
    return [holds(f"said/{place}", str(value)) for place, value in enumerate(values)]


def _runs(script: str, calls: list[list[int]]) -> str:
    lines = ["rm -rf said", "mkdir said"]
    lines += [
        f"bash {script} {' '.join(map(str, args))} > said/{place}"
        for place, args in enumerate(calls)
    ]
    return "\n".join(lines)


def _calls(rng: random.Random) -> list[list[int]]:
    return [[rng.randint(-900, 900) for _ in range(rng.randint(2, 7))] for _ in range(3)]


def mend_script(rng: random.Random) -> Draft:
    name = f"{rng.choice(NAMES)}.sh"
    right = 'total=0\nfor number in "$@"; do\n  total=$((total + number))\ndone\necho "$total"\n'
    old, new = rng.choice(
        [
            ("total + number", "total - number"),
            ('"$@"', '"$1"'),
            ("done\n", ""),
            ("total=0\n", "total=1\n"),
        ]
    )
    calls = _calls(rng)
    return Draft(
        f"The script {name} shall print the sum of its arguments, whole numbers, but it does not."
        " Mend it.",
        {name: "#!/bin/bash\n" + right.replace(old, new)},
        _results("sum", calls),
        f"cat > {name} <<< 't=0; for n in \"$@\"; do t=$((t + n)); done; echo $t'",
        _runs(name, calls),
    )


def write_script(rng: random.Random) -> Draft:
    function = rng.choice(("largest", "count"))
    name = f"{rng.choice(NAMES)}.sh"
    calls = _calls(rng)
    what = {"largest": "the largest of them", "count": "how many they are"}
    solution = {
        "largest": f'echo \'printf "%s\\n" "$@" | sort -n | tail -n 1\' > {name}',
        "count": f"echo 'echo $#' > {name}",
    }
    return Draft(
        f"Write a bash script {name} whose arguments are whole numbers. It prints {what[function]},"
        " and nothing else.",
        {},
        _results(function, calls),
        solution[function],
        _runs(name, calls),
    )


def make_folders(rng: random.Random) -> Draft:
    top, *below = some(rng, NAMES, 5, 7)
    number = rng.randint(3, 9)
    made = [f"{top}/{name}/{place}" for name in below for place in range(1, number + 1)]
    empty = "\n".join(sorted(made))
    find = f"find {top} -mindepth 2 -type d -empty | LC_ALL=C sort"
    return Draft(
        f"Make a folder {top} with the folders {', '.join(below)} in it, and in each of these empty"
        f" folders called 1 to {number}.",
        {},
        [f"[ \"$({find})\" = '{empty}' ]", paths([], top)],
        f"mkdir -p {top}/{{{','.join(below)}}}/{{1..{number}}}",
    )


SCRIPTS = (
    replace_everywhere,
    change_setting,
    settings_without_comments,
    mend_script,
    write_script,
    make_folders,
)

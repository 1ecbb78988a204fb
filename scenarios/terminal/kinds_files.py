"""Tasks about files and folders: names, sizes, modes, links, archives."""

from __future__ import annotations

import gzip
import io
import random
import tarfile

from gem_ma.scenarios.terminal.drafts import CITIES, NAMES, Draft, holds, paths, says, some


def rename_all(rng: random.Random) -> Draft:
    old, new = rng.sample(["txt", "md", "text", "note", "bak"], 2)
    names = some(rng, NAMES, 5, 9)
    files = {f"notes/{name}.{old}": f"{name} {rng.randint(100, 999)}\n" for name in names}
    other = {f"notes/keep_{NAMES[0]}.dat": "stays\n"}
    checks = [holds(path[: -len(old)] + new, text) for path, text in files.items()]
    there = [f"{name}.{new}" for name in names] + [path[6:] for path in other]
    return Draft(
        f"Rename all files of the folder notes that end on .{old} so that they end on .{new}.",
        {**files, **other},
        [*checks, paths(there, "notes")],
        f'for file in notes/*.{old}; do mv "$file" "${{file%.{old}}}.{new}"; done',
    )


def no_spaces(rng: random.Random) -> Draft:
    numbers = rng.sample(range(10, 99), 6)
    word = rng.choice(NAMES)
    files = {f"{word} {number}.jpg": f"picture {number * 7}\n" for number in numbers}
    checks = [holds(path.replace(" ", "_"), text) for path, text in files.items()]
    return Draft(
        "The names of some files here have a space in them. Rename these files: each space becomes"
        " an underscore.",
        files,
        [*checks, paths([path.replace(" ", "_") for path in files])],
        'for file in *" "*; do mv "$file" "${file// /_}"; done',
    )


def largest_file(rng: random.Random) -> Draft:
    names = some(rng, NAMES, 6, 10)
    sizes = rng.sample(range(100, 3000), len(names))
    files = {f"data/{n[0]}/{n}.dat": "x" * size for n, size in zip(names, sizes, strict=True)}
    largest = max(files, key=lambda path: len(files[path]))
    return Draft(
        "Which file below the folder data is the largest? Write its name, without any folder, to"
        " answer.txt.",
        files,
        [says("answer.txt", largest.rpartition("/")[2])],
        "find data -type f -printf '%s %f\\n' | sort -rn | head -n 1 | cut -d' ' -f2 > answer.txt",
    )


def count_files(rng: random.Random) -> Draft:
    kinds = rng.sample(["py", "txt", "csv", "md"], 3)
    files = {
        f"tree/{rng.choice(NAMES[:6])}/{rng.choice(NAMES[6:12])}/{place}.{rng.choice(kinds)}": "\n"
        for place in range(rng.randint(50, 90))
    }
    number = sum(path.endswith("." + kinds[0]) for path in files)
    return Draft(
        f"How many files that end on .{kinds[0]} are there below the folder tree, at any depth?"
        " Write the number to answer.txt.",
        files,
        [says("answer.txt", f"{number}")],
        f"find tree -type f -name '*.{kinds[0]}' | wc -l > answer.txt",
    )


def delete_old(rng: random.Random) -> Draft:
    years = {place: rng.randint(2015, 2024) for place in range(14)}
    bound = rng.randint(2018, 2022)
    years[90] = bound
    years[91] = bound - 1
    files = {f"reports/{year}-{place:02}.txt": f"{place * 31}\n" for place, year in years.items()}
    left = [path for path in files if int(path[8:12]) >= bound]
    return Draft(
        f"The files of the folder reports begin with a year. Delete those of the years before"
        f" {bound}, and no others.",
        files,
        [paths([path[8:] for path in left], "reports"), *(holds(p, files[p]) for p in left)],
        f'for file in reports/*; do y=${{file:8:4}}; [ "$y" -ge {bound} ] || rm "$file"; done',
    )


def tidy_by_suffix(rng: random.Random) -> Draft:
    kinds = rng.sample(["csv", "txt", "log", "cfg"], 3)
    names = some(rng, NAMES, 8, 12)
    files = {f"{name}.{rng.choice(kinds)}": f"{name}{rng.randint(10, 99)}\n" for name in names}
    moved = {f"{path.rpartition('.')[2]}/{path}": text for path, text in files.items()}
    return Draft(
        "Move each file here into a folder that is called by what its name ends on: a.csv becomes"
        " csv/a.csv.",
        files,
        [paths(list(moved)), *(holds(path, text) for path, text in moved.items())],
        'for file in *.*; do mkdir -p "${file##*.}"; mv "$file" "${file##*.}/"; done',
    )


def modes(rng: random.Random) -> Draft:
    names = some(rng, NAMES, 6, 9)
    keys = names[:3]
    plain = names[3:]
    files = {f"{name}.key": f"{name}\n" for name in keys}
    files |= {f"{name}.pub": f"{name}\n" for name in plain}
    mode = rng.choice((600, 400, 640))
    listed = "\n".join(sorted([f"{n}.key {mode}" for n in keys] + [f"{n}.pub 644" for n in plain]))
    return Draft(
        f"Give all files here that end on .key the mode {mode}, and leave the others as they are.",
        files,
        [f"[ \"$(find . -type f -printf '%P %m\\n' | LC_ALL=C sort)\" = '{listed}' ]"],
        f"chmod {mode} *.key",
    )


def newest_release(rng: random.Random) -> Draft:
    versions = {(rng.randint(1, 2), rng.randint(0, 12), rng.randint(0, 12)) for _ in range(7)}
    versions |= {(2, 9, 0), (2, 10, rng.randint(0, 9))}  # as text, 2.9 is behind 2.10
    newest = "releases/" + ".".join(map(str, max(versions)))
    files = {f"releases/{'.'.join(map(str, v))}/notes.txt": f"{v}\n" for v in versions}
    return Draft(
        "The folders of releases are called by their versions. Make a symbolic link here, called"
        " current, that leads to the newest one.",
        files,
        ["[ -L current ]", f'[ "$(readlink -f current)" = "$PWD/{newest}" ]'],
        'ln -s "releases/$(ls releases | sort -V | tail -n 1)" current',
    )


def pack(rng: random.Random) -> Draft:
    names = some(rng, NAMES, 4, 7)
    files = {f"papers/{name}.txt": f"{name} {rng.randint(100, 999)}\n" for name in names}
    noise = {f"{city}.txt": "x\n" for city in some(rng, CITIES, 2, 4)}
    checks = [
        f'[ "$(tar -xzOf papers.tar.gz {path})" = "{text.rstrip()}" ]'
        for path, text in files.items()
    ]
    listed = "\n".join(sorted(files))
    names_ = "tar -tzf papers.tar.gz | grep -v '/$' | LC_ALL=C sort"
    return Draft(
        "Pack the folder papers, and nothing else, into papers.tar.gz, a tar archive that is"
        " compressed by gzip. Its paths begin with papers/.",
        {**files, **noise},
        ["[ -f papers.tar.gz ]", f"[ \"$({names_})\" = '{listed}' ]", *checks],
        "tar -czf papers.tar.gz papers",
    )


def unpack(rng: random.Random) -> Draft:
    names = some(rng, NAMES, 5, 8)
    files = {f"{rng.choice(CITIES)}/{name}.txt": f"{rng.randint(1000, 9999)}\n" for name in names}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    data = gzip.compress(packed.getvalue(), mtime=0)
    total = sum(int(text) for text in files.values())
    return Draft(
        "Unpack bundle.tar.gz into the folder out, and write the sum of the numbers in all of its"
        " files to answer.txt.",
        {"bundle.tar.gz": data},
        [paths(list(files), "out"), says("answer.txt", total)],
        "mkdir out; tar -xzf bundle.tar.gz -C out\n"
        "cat $(find out -type f) | paste -sd+ | { read -r sum; echo $((sum)); } > answer.txt",
    )


FILES = (
    rename_all,
    no_spaces,
    largest_file,
    count_files,
    delete_old,
    tidy_by_suffix,
    modes,
    newest_release,
    pack,
    unpack,
)

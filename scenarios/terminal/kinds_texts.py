"""Tasks about what stands in files: counts, sums, sorted and extracted lines."""

from __future__ import annotations

import random
from collections import Counter

from gem_ma.scenarios.terminal.drafts import (
    CITIES,
    NAMES,
    PEOPLE,
    Draft,
    holds,
    log_lines,
    log_text,
    says,
    some,
)


def count_lines(rng: random.Random) -> Draft:
    lines = log_lines(rng, rng.randint(120, 240))
    level = rng.choice(("WARN", "ERROR", "DEBUG"))
    number = sum(line[1] == level for line in lines)
    return Draft(
        f"How many lines of app.log are of the level {level}? Write the number to answer.txt.",
        {"app.log": log_text(lines)},
        [says("answer.txt", number)],
        f"grep -c ' {level} ' app.log > answer.txt",
    )


def sum_column(rng: random.Random) -> Draft:
    rows = [(rng.choice(PEOPLE), rng.choice(CITIES), rng.randint(100, 999)) for _ in range(60)]
    city = rows[0][1]
    total = sum(row[2] for row in rows if row[1] == city)
    table = "name,city,amount\n" + "".join(f"{n},{c},{a}\n" for n, c, a in rows)
    return Draft(
        f"sales.csv has the columns name, city and amount. Write the sum of the amounts of {city}"
        " to answer.txt.",
        {"sales.csv": table},
        [says("answer.txt", total)],
        f"awk -F, '$2 == \"{city}\" {{ sum += $3 }} END {{ print sum }}' sales.csv > answer.txt",
    )


def sort_numbers(rng: random.Random) -> Draft:
    numbers = [rng.randint(-5000, 5000) for _ in range(50)]
    text = "\n".join(map(str, sorted(numbers, reverse=True)))
    return Draft(
        "Write the numbers of numbers.txt to sorted.txt, the largest first, one a line.",
        {"numbers.txt": "".join(f"{number}\n" for number in numbers)},
        [holds("sorted.txt", text)],
        "sort -rn numbers.txt > sorted.txt",
    )


def different_words(rng: random.Random) -> Draft:
    words = some(rng, NAMES, 8, 14)
    lines = [rng.choice(words) for _ in range(70)]
    text = "\n".join(sorted(set(lines)))
    return Draft(
        "words.txt has a word a line, many of them more than once. Write each word once to"
        " unique.txt, in alphabetical order.",
        {"words.txt": "".join(f"{word}\n" for word in lines)},
        [holds("unique.txt", text)],
        "sort -u words.txt > unique.txt",
    )


def commonest_word(rng: random.Random) -> Draft:
    words = some(rng, NAMES, 6, 9)
    drawn = [rng.choice(words) for _ in range(80)]
    word = rng.choice(words)
    most = max(count for other, count in Counter(drawn).items() if other != word)
    lines = [other for other in drawn if other != word] + [word] * (most + rng.randint(1, 4))
    rng.shuffle(lines)
    text = "".join(" ".join(lines[at : at + 7]) + "\n" for at in range(0, len(lines), 7))
    return Draft(
        "Which word stands most often in text.txt? Write it to answer.txt.",
        {"text.txt": text},
        [says("answer.txt", word)],
        "tr ' ' '\\n' < text.txt | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }'"
        " > answer.txt",
    )


def failed_addresses(rng: random.Random) -> Draft:
    lines = log_lines(rng, 160)
    text = "\n".join(sorted({line[0] for line in lines if line[1] == "ERROR"}))
    return Draft(
        "Each line of app.log has a date, an address and a level. Write the addresses of all lines"
        " of the level ERROR to addresses.txt: each once, sorted as text, one a line.",
        {"app.log": log_text(lines)},
        [holds("addresses.txt", text)],
        "awk '$3 == \"ERROR\" { print $2 }' app.log | LC_ALL=C sort -u > addresses.txt",
    )


def slowest_line(rng: random.Random) -> Draft:
    lines = log_lines(rng, 150)
    place = rng.randrange(150)
    lines[place] = (*lines[place][:3], rng.randint(1000, 9000))
    return Draft(
        "One line of app.log took longer than all others. Write that whole line to slowest.txt.",
        {"app.log": log_text(lines)},
        [holds("slowest.txt", log_text(lines).splitlines()[place])],
        "sort -k6,6nr app.log | head -n 1 > slowest.txt",
    )


def part_of_a_file(rng: random.Random) -> Draft:
    lines = [f"{rng.choice(NAMES)} {rng.randint(100, 999)}" for _ in range(90)]
    first = rng.randint(12, 40)
    last = rng.randint(45, 80)
    return Draft(
        f"Write lines {first} to {last} of long.txt to part.txt, in reverse order.",
        {"long.txt": "\n".join(lines) + "\n"},
        [holds("part.txt", "\n".join(reversed(lines[first - 1 : last])))],
        f"sed -n '{first},{last}p' long.txt | tac > part.txt",
    )


def one_field(rng: random.Random) -> Draft:
    rows = [f"{rng.choice(NAMES)}:{rng.randint(1, 99)}:{rng.choice(CITIES)}" for _ in range(40)]
    text = "\n".join(f"{row.split(':')[2]} {row.split(':')[0]}" for row in rows)
    return Draft(
        "Each line of users.txt is name:number:city. Write the city and the name of each, with one"
        " space between them and in the same order, to places.txt.",
        {"users.txt": "\n".join(rows) + "\n"},
        [holds("places.txt", text)],
        "awk -F: '{ print $3, $1 }' users.txt > places.txt",
    )


def joined_tables(rng: random.Random) -> Draft:
    people = some(rng, PEOPLE, 8, 12)
    orders = rng.randint(40, 60)
    names = {100 + place: name for place, name in enumerate(people)}
    paid = [(rng.choice(list(names)), rng.randint(10, 99)) for _ in range(orders)]
    best = max(names, key=lambda number: sum(sum_ for who, sum_ in paid if who == number))
    paid.append((best, 500))
    total = sum(amount for who, amount in paid if who == best)
    rng.shuffle(paid)
    return Draft(
        "customers.csv has lines number,name and orders.csv lines number,amount. Write the name of"
        " the customer whose amounts come to the largest sum, a space and that sum to answer.txt.",
        {
            "customers.csv": "".join(f"{number},{name}\n" for number, name in names.items()),
            "orders.csv": "".join(f"{who},{amount}\n" for who, amount in paid),
        },
        [holds("answer.txt", f"{names[best]} {total}")],
        "awk -F, 'NR == FNR { n[$1] = $2; next } { s[$1] += $2 }"
        " END { for (k in s) print n[k], s[k] }'"
        " customers.csv orders.csv | sort -k2,2nr | head -n 1 > answer.txt",
    )


TEXTS = (
    count_lines,
    sum_column,
    sort_numbers,
    different_words,
    commonest_word,
    failed_addresses,
    slowest_line,
    part_of_a_file,
    one_field,
    joined_tables,
)

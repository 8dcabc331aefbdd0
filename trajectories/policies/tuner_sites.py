"""Places in a pass's text where a number or a form can be another: what the tuner changes. Text in, text out.

Families: tile (elements or rows a program), warps, cache (hints on loads), threads (numba's parallel loops), maths
(reassociation). A change keeps the file's meaning but for rounding; whether it does is for the harness to say.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

BLOCKS = (128, 256, 512, 1024, 2048, 4096)
ROW_ELEMENTS = (256, 512, 1024, 2048, 4096, 8192, 16384)
WARPS = (1, 2, 4, 8, 16)
FAMILIES = {
    "tile": "the number of elements that one program handles",
    "warps": "the number of warps of a program",
    "cache": "hints on which loads to keep in cache",
    "threads": "loops over rows in parallel threads",
    "maths": "sums in any order, so that loops vectorise",
}
"""Family -> what it is, as a plan says it."""


@dataclass(frozen=True)
class Site:
    """One place that can be changed."""

    family: str
    path: str
    key: str
    """What it is called: equal places of two versions of a file have equal keys."""
    start: int
    end: int
    """In the file's text: what is replaced."""
    current: str
    choices: tuple[str, ...]
    """Texts to put there, the current one not among them."""


@dataclass(frozen=True)
class _Rule:
    family: str
    pattern: re.Pattern[str]
    """Its group `value` is what is replaced; `name`, if it has one, is part of the key."""
    choices: Callable[[re.Match[str]], Sequence[str]]


def _numbers(numbers: Sequence[int], form: str = "{}") -> Callable[[re.Match[str]], Sequence[str]]:
    return lambda found: [form.format(number) for number in numbers]


_RULES = (
    _Rule(
        "tile",
        re.compile(r"^ +(?P<name>BLOCK(?:_\d+)?) = (?P<value>\d+ if \w+ >= \d+ else \d+|\d+)$", re.M),
        _numbers(BLOCKS),
    ),
    _Rule(
        "tile",
        re.compile(r"^ +(?P<name>ROWS(?:_\d+)?) = (?P<value>max\(\d+, \d+ // (?P<block>BLOCK\w*)\))$", re.M),
        lambda found: [f"max(1, {number} // {found['block']})" for number in ROW_ELEMENTS],
    ),
    _Rule("warps", re.compile(r"^ +(?P<name>num_warps) = (?P<value>\d+(?: if .+ else \d+)?)$", re.M), _numbers(WARPS)),
    _Rule(
        "cache",
        re.compile(r"tl\.load\([^\n]*?mask=(?P<name>m\w*), (?P<value>other=0(?:, eviction_policy=\"\w+\")?)\)"),
        lambda found: ["other=0", *(f'other=0, eviction_policy="{each}"' for each in ("evict_first", "evict_last"))],
    ),
    _Rule(
        "threads",
        re.compile(
            r"^(?P<value>@numba\.njit\((?P<rest>error_model=\"numpy\"(?![^)\n]*forceinline)[^)\n]*)\)\n"
            r"(?P<def>def (?P<name>\w+)\([^)]*\):\n)"
            r"(?P<indent> +)for (?P<index>\w+) in (?P<loop>numba\.prange|range)\()",
            re.M,
        ),
        lambda found: [_threads(found, True), _threads(found, False)],
    ),
    _Rule(
        "maths",
        re.compile(r'^@numba\.njit\((?P<value>error_model="numpy"(?:, fastmath=\{[^}\n]*\})?)(?=[,)])', re.M),
        lambda found: ['error_model="numpy"', 'error_model="numpy", fastmath={"reassoc", "nsz"}'],
    ),
)


def _threads(found: re.Match[str], parallel: bool) -> str:
    rest = found["rest"].replace(", parallel=True", "")
    options = f"{rest}, parallel=True" if parallel else rest
    loop = "numba.prange" if parallel else "range"
    return f"@numba.njit({options})\n{found['def']}{found['indent']}for {found['index']} in {loop}("


def find_sites(files: Mapping[str, str]) -> list[Site]:
    """Every place of a pass folder that can be changed, by path and position."""
    sites = []
    for path, text in sorted(files.items()):
        if not path.endswith(".py"):
            continue
        for number, rule in enumerate(_RULES):
            seen: dict[str, int] = {}
            for found in rule.pattern.finditer(text):
                name = found.groupdict().get("name") or ""
                seen[name] = seen.get(name, 0) + 1
                choices = tuple(dict.fromkeys(each for each in rule.choices(found) if each != found["value"]))
                key = f"{path}:{number}:{name}:{seen[name]}"
                span = found.span("value")
                if choices:
                    sites.append(Site(rule.family, path, key, *span, found["value"], choices))
    return sites


def put(files: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """The folder with other texts at the sites of these keys; the rest as it is."""
    result = dict(files)
    taken = [site for site in find_sites(files) if values.get(site.key, site.current) != site.current]
    kept: list[Site] = []
    for site in taken:  # two rules may meet in one line: the first wins
        if all(site.path != other.path or site.end <= other.start or other.end <= site.start for other in kept):
            kept.append(site)
    for site in sorted(kept, key=lambda each: each.start, reverse=True):
        text = result[site.path]
        result[site.path] = text[: site.start] + values[site.key] + text[site.end :]
    return result


def mutate(
    files: Mapping[str, str], rng: random.Random, *, families: Sequence[str] = (), num_changes: int = 1
) -> dict[str, str] | None:
    """The folder with so many places changed, of these families only; None where there is none.

    Places that hold the same in several files or rules are changed together: graphs of a task are alike.
    """
    sites = [site for site in find_sites(files) if not families or site.family in families]
    if not sites:
        return None
    groups: dict[tuple[str, str, tuple[str, ...]], list[Site]] = {}
    for site in sites:
        is_loop = site.family == "threads"
        alike = (site.family, "" if is_loop else site.key.split(":")[2], () if is_loop else site.choices)
        groups.setdefault(alike, []).append(site)
    values: dict[str, str] = {}
    chosen = rng.sample(sorted(groups, key=str), min(num_changes, len(groups)))
    for alike in chosen:
        place = rng.randrange(min(len(site.choices) for site in groups[alike]))
        values |= {site.key: site.choices[place] for site in groups[alike]}
    changed = put(files, values)
    return changed if changed != dict(files) else None


def cross(files: Mapping[str, str], other: Mapping[str, str], rng: random.Random) -> dict[str, str]:
    """The folder with about half of the places where another version differs as they are there."""
    theirs = {site.key: site.current for site in find_sites(other)}
    values = {
        site.key: theirs[site.key]
        for site in find_sites(files)
        if site.key in theirs and theirs[site.key] in site.choices and rng.random() < 0.5
    }
    return put(files, values)


def families_of(files: Mapping[str, str]) -> list[str]:
    """The families that a folder has places of, in the order of FAMILIES."""
    found = {site.family for site in find_sites(files)}
    return [family for family in FAMILIES if family in found]

"""The campaigns one after another, and the page that tells what they found.

`python tests/chaos/campaigns.py run` makes those of 20 seeds that have no result in build/campaigns yet, and then the
page; `page` makes docs/reference/chaos.md from the results that are there. A result that is older than the code says
nothing about it: `run --anew` throws all of them away first.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from campaign import ERROR_IS_LOOKED_AFTER, KILLED, LONGEST_CLOSED, REQUESTS, TROUBLE
from stack import ANSWER_SECONDS, SERVICES, SHORTENED, START_SECONDS, STOP_SECONDS, WORKERS

from voxint.settings import Settings

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "campaigns"
PAGE = ROOT / "docs" / "reference" / "chaos.md"
SEEDS = range(1, 21)
RECORDINGS = 200

HEAD = """\
# Campaigns of kills

This page is made by `make campaigns` from what the campaigns wrote to build/campaigns; nothing in it is typed by hand.

A campaign sends {recordings} recordings through the whole product, as real processes: PostgreSQL, Valkey, beat, the
gpu-phase worker, two regular workers of {workers} processes each, the reference broker, which owns the language model,
and the model services, which the gpu-phase worker starts. The models are stand-ins that answer after {answers}, need
{start:g} s to start and {stop:g} s to stop, and write down when they are on the card. They take no lock: nothing but
the turn-taking keeps the two sides apart.

At times that the seed sets, until most of the work is done, one of these happens:

- killed with `kill -9`, started again after up to 1.5 s: {killed};
- {trouble};
- an operator asks for {requests}; where `error` has lasted for {looked_after:g} s, for the release, as the alert says;
  and once the trouble is over, for `audio-now` where it has left a backoff behind.

Afterwards a campaign is *clean* where every recording is done, no stage was done twice, no stage began outside its
lane, the two sides were never on the card together (looked at every 30 ms), every request was answered, a lane is open,
no lane was open for no longer than {closed:g} s at a time, and each kind of process was killed at least once. The
limit is the time that services of both sides need to stop and start, the longest answer, the heartbeat limit, and 90 s.
Each campaign had {limit} for all of it (by default 240 s); the load of the machine, per processor and with whatever
else ran there, stands in the table.

`make chaos SEED=7` repeats one: the same recordings and the same plan of trouble. When each part is hit, and so what it
was doing, still differs from run to run.

The settings are the shipped ones, but for these, so that many turns fit into four minutes:

| setting | shipped | in a campaign |
| --- | --- | --- |
{settings}

"""


def settings_table() -> str:
    """What is shortened, beside what is shipped."""
    lines = []
    for name, value in SHORTENED.items():
        lines.append(f"| {name} | {Settings.model_fields[name.lower()].default:g} | {value} |")
    return "\n".join(lines)


def listed(words: tuple[str, ...] | list[str]) -> str:
    """Names in a row."""
    return ", ".join(f"`{word}`" for word in words)


def head(found: list[dict]) -> str:
    """What a campaign is."""
    limits = sorted({one["limit"] for one in found})
    answers = f"{min(ANSWER_SECONDS.values()) * 1000:g} to {max(ANSWER_SECONDS.values()) * 1000:g} ms"
    return HEAD.format(
        recordings=RECORDINGS,
        workers=WORKERS,
        answers=answers,
        start=START_SECONDS,
        stop=STOP_SECONDS,
        killed=listed(KILLED),
        trouble=listed(TROUBLE),
        requests=" or ".join(f"`{word}`" for word in REQUESTS),
        closed=LONGEST_CLOSED,
        looked_after=ERROR_IS_LOOKED_AFTER.total_seconds(),
        settings=settings_table(),
        limit=" or ".join(f"{limit:g} s" for limit in limits),
    )


def results_table(found: list[dict]) -> str:
    """A line a campaign, and the sums."""
    names = (
        "seed",
        "s",
        "load",
        "kills",
        "other",
        "switches",
        "requests",
        "done",
        "lost",
        "twice",
        "overlaps",
        "unanswered",
    )
    lines = [
        f"| {' | '.join((*names, 'longest closed, s', 'clean'))} |",
        "|" + " ---: |" * (len(names) + 1) + " --- |",
    ]
    for one in found:
        cells = [
            one["seed"],
            round(one["seconds"]),
            one["load"],
            sum(one["kills"].values()),
            sum(one["trouble"].values()),
            one["switches"],
            one["requests"],
            one["done"],
            one["lost"],
            one["twice"],
            one["overlaps"] + one["outside"],
            one["requests_lost"],
            f"{one['longest_closed']:.1f}",
            "yes" if one["clean"] else "; ".join(one["findings"]),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def counts_table(found: list[dict], what: str, names: tuple[str, ...]) -> str:
    """How often each kind was hit in all campaigns together, and in the campaign that hit it least."""
    lines = ["| kind | all campaigns | fewest in one |", "| --- | ---: | ---: |"]
    for name in names:
        times = [one[what][name] for one in found]
        lines.append(f"| `{name}` | {sum(times)} | {min(times)} |")
    return "\n".join(lines)


def page(found: list[dict]) -> str:
    """The page."""
    clean = sum(one["clean"] for one in found)
    kills = sum(sum(one["kills"].values()) for one in found)
    other = sum(sum(one["trouble"].values()) for one in found)
    total = {name: sum(one[name] for one in found) for name in ("recordings", "done", "lost", "twice", "switches")}
    overlaps = sum(one["overlaps"] + one["outside"] for one in found)
    closed = max(one["longest_closed"] for one in found)
    return (
        head(found)
        + f"## {clean} of {len(found)} campaigns are clean\n\n"
        + f"{total['done']} of {total['recordings']} recordings done, {total['lost']} lost, {total['twice']} stages done"
        + f" twice, {overlaps} overlaps; {kills} kills, {other} other troubles, {total['switches']} times audio got the"
        + f" GPU; no lane open for {closed:.1f} s at most, of {LONGEST_CLOSED:g} s allowed.\n\n"
        + results_table(found)
        + "\n\n## Kills by kind of process\n\n"
        + counts_table(found, "kills", KILLED)
        + "\n\n## Other trouble\n\n"
        + counts_table(found, "trouble", TROUBLE)
        + "\n\n`*-child` is the process of a worker's pool alone; the others go with all their processes, as a container"
        + f" does. {listed(list(SERVICES))} are killed where they run.\n"
    )


def read_results() -> list[dict]:
    """What the campaigns wrote."""
    files = [RESULTS / f"chaos-{seed}.json" for seed in SEEDS]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]


def run_missing(beside: int) -> None:
    """The campaigns that have no result yet, each in a process of its own, so many of them at a time."""
    seeds = [seed for seed in SEEDS if not (RESULTS / f"chaos-{seed}.json").exists()]
    with ThreadPoolExecutor(beside) as pool:
        for _ in pool.map(run_one, seeds):
            pass


def run_one(seed: int) -> None:
    """One campaign: what it prints goes to a file beside its result, its last line to the terminal."""
    words = ["--seed", str(seed), "--recordings", str(RECORDINGS), "--out", str(RESULTS)]
    with (RESULTS / f"chaos-{seed}.log").open("w", encoding="utf-8") as output:
        subprocess.run(
            [sys.executable, str(Path(__file__).parent / "campaign.py"), *words],
            check=False,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    lines = (RESULTS / f"chaos-{seed}.log").read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if line.startswith("found: ")]
    print("\n".join([*found, *lines[-1:]]), flush=True)


def main() -> int:
    """Run, or write the page; 0 where all campaigns are there and clean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "page"])
    parser.add_argument("--anew", action="store_true", help="throw the results away that are there")
    parser.add_argument(
        "--beside", type=int, default=2, help="so many campaigns at a time (a campaign computes little)"
    )
    arguments = parser.parse_args()
    if arguments.anew:
        shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    if arguments.what == "run":
        run_missing(arguments.beside)
    found = read_results()
    if not found:
        print("no results in build/campaigns: make campaigns", file=sys.stderr)
        return 1
    PAGE.write_text(page(found), encoding="utf-8")
    clean = sum(one["clean"] for one in found)
    kills = sum(sum(one["kills"].values()) for one in found)
    print(f"campaigns: {len(found)} of {len(SEEDS)} run, {clean} clean, {kills} kills; docs/reference/chaos.md")
    return 0 if clean == len(SEEDS) else 1


if __name__ == "__main__":
    sys.exit(main())

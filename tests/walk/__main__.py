"""`make walk`: the whole walk, and once more with each guard switched off."""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from walk.guards import GUARDS
from walk.report import walk_whole, walk_without


def main() -> int:
    """Walk, print what came of it, and write it down."""
    parser = argparse.ArgumentParser(prog="walk", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="processes at the same time")
    parser.add_argument("--out", type=Path, default=Path("build/walk.json"), help="where the results are written")
    arguments = parser.parse_args()
    # `spawn`: a guard that is switched off in one process must be on in every other.
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        whole_job = pool.submit(walk_whole)
        jobs = [pool.submit(walk_without, number) for number in range(len(GUARDS))]
        broken = []
        for job in jobs:
            one = job.result()
            broken.append(one)
            words = one["found"] or "NOT FOUND"
            print(f"guard off: {one['guard']:<32} {one['states']:>6} states  {words}", flush=True)
        whole = whole_job.result()
    found = sum(1 for one in broken if one["found"])
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"walk": whole, "guards": broken}, indent=1) + "\n", encoding="utf-8")
    if whole["violation"]:
        print("\n".join(whole["way"]))  # type: ignore[arg-type]
        print(f"violation: {whole['violation']}")
    print(
        f"well again: an open lane within {whole['ticks_to_an_open_lane']} ticks, all work done within"
        f" {whole['ticks_to_all_work_done']}, the post lane without any worker within"
        f" {whole['ticks_to_the_post_lane_without_workers']}"
    )
    print(
        f"walk: {whole['states']} states, {whole['edges']} edges, {1 if whole['violation'] else 0} violations;"
        f" {found} of {len(GUARDS)} broken guards found"
    )
    return 0 if found == len(GUARDS) and not whole["violation"] else 1


if __name__ == "__main__":
    sys.exit(main())

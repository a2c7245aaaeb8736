"""Writes docs/reference/engine.md from what `make test-docker` wrote down: `make docker-page`.

The figures are copied, never typed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "engine.md"
REPORT = ROOT / "build" / "docker" / "report.json"
IMAGES = ROOT / "build" / "docker" / "images.json"
PHASES = ("draining_post", "acquiring", "starting_services", "audio", "draining", "stopping_services", "releasing")
INTRO = """# The stack on a real Docker engine

Figures of `make test-docker`, copied here by `make docker-page`; your machine will have others.
"""
UNTRIED = """
## What this cannot show

- There is no GPU in it. `deploy`, `devices` and `group_add` of the model services are taken away by `tests/docker/compose.test.yaml`, and a
  lock on a file stands for the card. A test holds that nothing else differs from the shipped files but images and commands of the models.
- The database and Redis are Debian's packages where the official images cannot be pulled, and the base image is then Debian 12's own
  Python 3.11, made by debootstrap; the versions that the files name were not run in that case.
- The broker is a service of the same project, but where a scenario names the host.
- A scenario that is not in the table above has no result from these runs.
- Rootless Docker, Podman, and other versions of the engine were not tried.
"""


def table(head: list[str], rows: list[list[object]]) -> str:
    """A table; nothing for no rows."""
    lines = [head, ["---"] * len(head), *[[str(value) for value in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n" if rows else "None.\n"


def ran_on(report: dict[str, Any]) -> str:
    """The machine, the engine, and what was shortened."""
    engine, runs = report["engine"], report["runs"]
    whose = "started by the tests" if engine["own"] else "found on the machine"
    shortened = ", ".join(f"`{name}={value}`" for name, value in report["shortened"].items())
    rows = [
        [
            "everything" if run["whole"] else "a part",
            run["tests"],
            run["seconds"],
            run["processors"],
            run["load_before"],
            run["load_after"],
        ]
        for run in runs
    ]
    head = ["run of", "tests", "seconds", "processors", "load before", "load after"]
    return (
        f"\nDocker {engine['docker']} (API {engine['api']}, {engine['storage']}, cgroup v{engine['cgroups']}), {whose}, "
        f"compose {engine['compose']}, Linux {report['machine']['kernel']}. A load beyond the number of processors is other "
        f"programs' work on the same machine. Settings that differ from their defaults so that tests need not wait: {shortened}.\n\n"
        + table(head, rows)
        + (
            ""
            if any(run["whole"] for run in runs)
            else "\nThese are runs of parts, put together: each test's latest result counts.\n"
        )
    )


def turns(report: dict[str, Any]) -> str:
    """Seconds in each phase."""
    found = report["turns"].items()
    rows = [[name, turn["recordings"], *(turn["seconds"][phase] for phase in PHASES)] for name, turn in found]
    return table(["turn", "recordings", *(f"`{phase}`" for phase in PHASES)], rows)


def kills(report: dict[str, Any]) -> str:
    """What was killed when, and the result."""
    rows = [
        [
            f"`{kill['killed']}`",
            f"`{kill['in']}`",
            kill["how"],
            kill["result"],
            kill.get("ticks_again_seconds", "-"),
            kill.get("all_done_seconds", "-"),
            kill.get("most_attempts", "-"),
        ]
        for kill in report["kills"].values()
    ]
    head = ["killed", "in phase", "how", "recordings", "ticks saved again after s", "all done and settled after s"]
    return table([*head, "most attempts of a stage"], rows)


def scenarios(report: dict[str, Any]) -> str:
    """Every test, its result, and what it took."""
    rows = []
    for name, test in report["tests"].items():
        took = sum(test.get(when, 0) for when in ("setup", "call", "teardown"))
        rows.append([f"`{name.replace('|', '/')}`", test["outcome"], f"{took:.0f}"])
    return table(["test", "result", "seconds"], rows)


def built() -> str:
    """The real images, built by `make docker-images`."""
    if not IMAGES.exists():
        return "Not built in this run: `make docker-images`.\n"
    images = json.loads(IMAGES.read_text(encoding="utf-8"))
    rows = [[f"`{one['image']}`", one["mb"], one["seconds"], one["said"]] for one in images["built"]]
    base = f"The base image is {images['base_mb']} MB of each.\n\n"
    return base + table(["image", "MB with its base", "seconds to build", "what it did"], rows)


def page(report: dict[str, Any]) -> str:
    """The page."""
    shown = report["shown"]
    parts = [INTRO, ran_on(report)]
    for title, text in (
        ("Seconds in each phase", turns(report)),
        ("What was killed when", kills(report)),
        ("Set-up", table(["what", "seconds"], [[name, took] for name, took in report["seconds_of"].items()])),
        ("Images of the tests", table(["image", "MB"], [[f"`{name}`", mb] for name, mb in report["images"].items()])),
        ("The shipped images, built", built()),
        ("Every scenario", scenarios(report)),
    ):
        parts.append(f"\n## {title}\n\n{text}")
    if shown:
        parts.append(
            "\n## What people see\n\nAfter `up -d`, every recording done, the GPU back with the language model:\n"
        )
        asked = ("gpu-phase status", "gpu-phase history", "runs list", "doctor")
        parts += [f"\n```\n$ docker compose exec api voxint {name}\n{shown[name].rstrip()}\n```\n" for name in asked]
        parts.append(f"\nThe exit status of `doctor` was {shown['exit status of doctor']}.\n")
    parts.append(UNTRIED)
    return "".join(parts)


if __name__ == "__main__":
    if not REPORT.exists():
        sys.exit(f"there is no {REPORT.relative_to(ROOT)}: run `make test-docker` first")
    PAGE.write_text(page(json.loads(REPORT.read_text(encoding="utf-8"))), encoding="utf-8")

"""What runs of tests/docker found, as one JSON file; scripts/engine_page.py makes a page of it.

A run of everything begins the file anew. A run of a part takes the place of what an earlier run said about the same
tests, and stands in the file as a run of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time

from docker_stack import SHORTENED
from real_engine import BUILD

FILE = BUILD / "report.json"


class Report:
    """Facts of one run. Written when the run is over, whatever came of it."""

    def __init__(self):
        self.began = time.monotonic()
        self.whole = False
        self.run = {"processors": len(os.sched_getaffinity(0)), "load_before": round(os.getloadavg()[0], 1)}
        self.facts = {
            "machine": {"kernel": platform.release().split("-")[0]},
            "shortened": SHORTENED,
            "tests": {},
            "kills": {},
            "turns": {},
            "shown": {},
            "seconds_of": {},
        }

    def note_engine(self, engine, compose, took):
        """What it ran on, and the sizes of the images."""
        client = engine.client()
        info, version = client.info(), client.version()
        self.facts["engine"] = {
            "docker": version["Version"],
            "api": version["ApiVersion"],
            "own": engine.own,
            "storage": info["Driver"],
            "cgroups": info.get("CgroupVersion", "1"),
            "compose": compose,
        }
        names = ((tag, image) for image in client.images.list() for tag in image.tags)
        self.facts["images"] = {tag: round(image.attrs["Size"] / 1e6) for tag, image in sorted(names)}
        self.facts["seconds_of"].update(took)
        client.close()

    def note_test(self, report):
        """The result of one phase of one test, as pytest tells it."""
        name = report.nodeid.removeprefix("tests/docker/")
        test = self.facts["tests"].setdefault(name, {"outcome": "not finished"})
        test[report.when] = round(report.duration, 1)
        if report.outcome != "passed" or (report.when == "call" and test["outcome"] == "not finished"):
            test["outcome"] = report.outcome

    def write(self):
        """Begin the file anew, or put this run's part into it."""
        self.run |= {
            "whole": self.whole,
            "tests": len(self.facts["tests"]),
            "seconds": round(time.monotonic() - self.began),
            "load_after": round(os.getloadavg()[0], 1),
        }
        document = {"runs": []}
        if not self.whole:
            with contextlib.suppress(OSError, ValueError):
                document = json.loads(FILE.read_text(encoding="utf-8"))
        document["runs"].append(self.run)
        for name, value in self.facts.items():
            document[name] = {**document.get(name, {}), **value}
        BUILD.mkdir(parents=True, exist_ok=True)
        FILE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

"""What a run of tests/docker found, as one JSON file; scripts/engine_page.py makes a page of it."""

from __future__ import annotations

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
        self.facts = {
            "whole": False,
            "machine": {
                "processors": len(os.sched_getaffinity(0)),
                "kernel": platform.release().split("-")[0],
                "load_before": round(os.getloadavg()[0], 1),
            },
            "shortened": SHORTENED,
            "tests": {},
            "kills": [],
            "turns": [],
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
        test = self.facts["tests"].setdefault(name, {"outcome": "passed"})
        test[report.when] = round(report.duration, 1)
        if report.outcome != "passed":
            test["outcome"] = report.outcome

    def write(self):
        self.facts["seconds"] = round(time.monotonic() - self.began)
        self.facts["machine"]["load_after"] = round(os.getloadavg()[0], 1)
        BUILD.mkdir(parents=True, exist_ok=True)
        name = FILE if self.facts["whole"] else FILE.with_name("report-part.json")
        name.write_text(json.dumps(self.facts, indent=1) + "\n", encoding="utf-8")

"""Shows `voxint gpu-phase status` and `voxint doctor` in each phase, on a running standalone: build/phases-shown/*.txt.

The stand-ins are made slow where a phase would be over too soon to look at it. What a command printed is kept only
where both commands name the phase; a turn in which one was too late is made again. The script ends with 1 where a phase
is missing, or where doctor's exit status is not what the phase asks for.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from standalone_run import Run

OUT = Path("build") / "phases-shown"
LONG = 40
TURNS = 4
EXITS = {
    "llm": 0,
    "llm, 3 recordings wait": 0,
    "draining_post": 0,
    "acquiring": 0,
    "starting_services": 1,  # whisper answers 503 while it loads: that is never off on purpose
    "audio": 0,
    "audio, with sharing off": 1,  # then nothing is off on purpose, and the language model is down
    "draining": 0,
    "stopping_services": 0,
    "releasing": 0,
    "error": 1,  # the language model should run, and does not
}
"""What is shown, in order, with doctor's exit status."""
SETTINGS = {"GPU_PHASE_MIN_DWELL_SECONDS": "600"}
"""So that only a request changes hands."""


class Shown:
    """What was captured so far."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._pool = ThreadPoolExecutor(2)
        self.exits: dict[str, int] = {}

    def missing(self, *names: str) -> list[str]:
        """What is not yet captured, of these or of all."""
        return [name for name in names or EXITS if name not in self.exits]

    def capture(self, name: str, **environ: str) -> None:
        """Run both commands, at the same time; keep what they print if both did so in the phase that `name` begins with."""
        if name in self.exits:
            return
        phase = name.split(",", maxsplit=1)[0]
        commands = (("gpu-phase", "status"), ("doctor",))
        status, doctor = self._pool.map(lambda command: self._run.at_once(*command, **environ), commands)
        sharing = next((line for line in doctor.stdout.splitlines() if line[7:].startswith("gpu sharing")), "")
        in_error = phase == "error" and "could not be handed back" in sharing
        if f"phase:         {phase} - " not in status.stdout or not (f"{phase}:" in sharing or in_error or environ):
            sys.stdout.write(f"--- {name}: too late\n{status.stdout}{sharing}\n")
            return
        text = "".join(
            f"$ voxint {' '.join(command)}\n{done.stdout}{done.stderr}(exit {done.returncode})\n\n"
            for command, done in zip(commands, (status, doctor), strict=True)
        )
        (OUT / f"{list(EXITS).index(name) + 1:02} {name}.txt").write_text(text)
        self.exits[name] = doctor.returncode
        sys.stdout.write(f"--- {name}\n{text}")
        sys.stdout.flush()


def main() -> int:
    """Show all; 0 where every phase was shown with the exit status that it should have."""
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("*.txt"):
        old.unlink()
    with Run(SETTINGS) as run:
        shown = Shown(run)
        shown.capture("llm")
        for _ in range(TURNS):
            if shown.missing():
                _turn(run, shown)
        _times(run)
    missing = shown.missing()
    wrong = {name: code for name, code in shown.exits.items() if code != EXITS[name]}
    sys.stdout.write(f"{len(shown.exits)} shown under {OUT}; missing {missing}; doctor's exit wrong {wrong}\n")
    return 1 if missing or wrong else 0


WAY = ("draining_post", "acquiring", "starting_services", "audio", "draining", "stopping_services", "releasing", "llm")


def _turn(run: Run, shown: Shown) -> None:
    """To audio and back, with what is still missing made long enough to be looked at; then a hand-back that fails."""

    def long(name: str) -> int:
        return LONG if shown.missing(name) else 0

    def come_to(phase: str) -> None:
        run.until_phase(*WAY[WAY.index(phase) :])
        shown.capture(phase)

    if shown.missing("draining_post", "llm, 3 recordings wait"):
        _work_for_the_language_model(run, shown)
    answers = {"/v1/chat/completions": {"answer_seconds": 4}} if shown.missing("draining_post") else {}
    language_model = {"stop_seconds": long("acquiring"), "start_seconds": long("releasing")}
    whisper = {"start_seconds": long("starting_services"), "answer_seconds": 900}
    whisper["stop_seconds"] = long("stopping_services")
    run.stand_ins({"language_model": {**language_model, "paths": answers}, "whisper": whisper})
    run.add_recordings(1)
    run.must("gpu-phase", "audio-now")
    run.until(lambda: run.value("SELECT phase FROM gpu_phase") != "llm", 300, "the switch did not begin")
    come_to("draining_post")
    run.stand_ins({"language_model": language_model, "whisper": whisper})
    come_to("acquiring")
    come_to("starting_services")
    run.until_phase("audio")
    run.until(lambda: run.work("gpu", "running"), 300, "no recording is worked on")
    shown.capture("audio")
    shown.capture("audio, with sharing off", GPU_PHASE_ENABLED="false")

    run.must("gpu-phase", "release")
    come_to("draining")
    run.must("gpu-phase", "release")
    come_to("stopping_services")
    come_to("releasing")
    run.until_phase("llm")
    if shown.missing("error"):
        _failed_hand_back(run, shown)
    run.stand_ins({})


def _failed_hand_back(run: Run, shown: Shown) -> None:
    """The language model does not come up again."""
    run.stand_ins({"whisper": {"answer_seconds": 900}})
    run.must("gpu-phase", "audio-now")
    run.until_phase("audio")
    run.stand_ins({"language_model": {"start_fails": True}, "whisper": {"answer_seconds": 900}})
    run.must("gpu-phase", "release")
    run.until_phase("draining", "stopping_services", "releasing", "error")
    run.must("gpu-phase", "release")
    run.until_phase("error")
    shown.capture("error")
    run.stand_ins({})
    run.must("gpu-phase", "release")
    run.until_phase("llm")


def _work_for_the_language_model(run: Run, shown: Shown) -> None:
    """Transcribe three recordings, and let the language model take its time over them."""
    run.add_recordings(3, seconds=120)
    shown.capture("llm, 3 recordings wait")
    run.must("gpu-phase", "audio-now")
    run.until(lambda: run.work("post", "queued") >= 3, 300, "the recordings were not transcribed")
    run.must("gpu-phase", "release")
    run.stand_ins({"language_model": {"paths": {"/v1/chat/completions": {"answer_seconds": 4}}}})
    run.until_phase("llm")
    run.until(lambda: run.work("post", "running"), 300, "no language-model work began")


def _times(run: Run) -> None:
    """How long a look takes, the process's start and end included; on a busy machine its processor time tells more."""
    lines = []
    for name, arguments in (("voxint --help", ["--help"]), ("voxint gpu-phase status", ["gpu-phase", "status"])):
        took = sorted(_one(run, arguments) for _ in range(7))
        wall, processor = took[3][0], sorted(one[1] for one in took)[3]
        lines.append(
            f"{name}: {wall:.2f} s, of which {processor:.2f} s on a processor"
            f" (medians of 7; {took[0][0]:.2f} to {took[-1][0]:.2f} s)\n"
        )
    (OUT / "times.txt").write_text("".join(lines))
    sys.stdout.write("".join(lines))


def _one(run: Run, arguments: list[str]) -> tuple[float, float]:
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "voxint", *arguments], env=run.environ, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, used


if __name__ == "__main__":
    sys.exit(main())

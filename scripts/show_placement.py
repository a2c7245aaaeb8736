"""Shows what a model service on the CPU leads to, on a running standalone: build/placement-shown/*.txt.

pyannote says cpu where cuda is expected, once on its first start only and once always, under each
GPU_PLACEMENT_ACTION. The script ends with 1 where the history does not have the line that this must lead to. The
devices are what stand-ins say: no GPU is needed, and none is tried.
"""

from __future__ import annotations

import sys
from pathlib import Path

from standalone_run import Run

OUT = Path("build") / "placement-shown"
UP = "all model services were up: "
ON_CPU = "pyannote runs on cpu, expected cuda"
CURED = "pyannote came up on the wrong device, and runs on cuda after 1 restart"
LINES = {
    ("warn", "first"): UP + ON_CPU,
    ("warn", "always"): UP + ON_CPU,
    ("restart", "first"): UP + CURED,
    ("restart", "always"): f"{UP}{ON_CPU} (1 restart tried)",
    ("abort", "first"): UP + CURED,
    ("abort", "always"): f"a model service came up on the wrong device: {ON_CPU} (1 restart tried)",
}
"""The line of the history that each must lead to."""
SLOW = {"start_seconds": 15}
"""So that its second start can be given another device before it answers."""
RESTARTS = "SELECT restarts FROM placement WHERE service = 'pyannote'"
"""Asked for in the first window alone: there it begins at none."""
CAME_UP = "SELECT count(*) FROM gpu_phase_event WHERE cause IN ('services_healthy', 'wrong_device')"
COMMANDS = (("placement",), ("gpu-phase", "status"), ("gpu-phase", "history"), ("doctor",))


def main() -> int:
    """Show all six; 0 where each has its line."""
    OUT.mkdir(parents=True, exist_ok=True)
    missing = []
    for action in ("warn", "restart", "abort"):
        environ = {
            "GPU_PLACEMENT_ACTION": action,
            "GPU_PLACEMENT_EXPECT": "whisper=cuda,pyannote=cuda,titanet=cuda",
            "GPU_PHASE_MIN_DWELL_SECONDS": "600",
        }
        with Run(environ) as run:
            for times in ("first", "always"):
                missing += _window(run, action, times)
    sys.stdout.write(f"6 windows shown under {OUT}; missing: {missing or 'nothing'}\n")
    return 1 if missing else 0


def _window(run: Run, action: str, times: str) -> list[str]:
    seen = run.value(CAME_UP)
    _devices(run, "cpu")
    run.must("gpu-phase", "audio-now")
    if times == "first" and action != "warn":
        run.until(lambda: run.value(RESTARTS), 300, "pyannote was not restarted")
        _devices(run, "cuda:0")
    run.until(lambda: run.value(CAME_UP) > seen, 300, "the services did not come up")
    text = ""
    for command in COMMANDS:
        done = run.voxint(*command)
        lines = [line for line in done.stdout.splitlines() if command != ("doctor",) or "placement" in line]
        text += f"$ voxint {' '.join(command)}\n" + "\n".join(lines) + f"\n{done.stderr}(exit {done.returncode})\n\n"
    wanted = LINES[action, times]
    name = f"{action}, {'on the first start only' if times == 'first' else 'always'}"
    (OUT / f"{name}.txt").write_text(text)
    sys.stdout.write(f"--- {name}\n{text}")
    sys.stdout.flush()
    run.must("gpu-phase", "release")
    run.until_phase("llm")
    return [] if wanted in text else [f"{name}: {wanted}"]


def _devices(run: Run, pyannote: str) -> None:
    run.stand_ins(
        {"whisper": {"device": "cuda:0"}, "titanet": {"device": "cuda:0"}, "pyannote": {"device": pyannote, **SLOW}}
    )


if __name__ == "__main__":
    sys.exit(main())

"""The settings of a standalone Voxint: what it decides itself, and what its user may set."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from voxint.standalone.home import LOOPBACK, write_privately

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxint.standalone.home import Home

SERVICES = ("whisper", "pyannote", "titanet")
PORT_NAMES = ("console", "broker", "language-model", *SERVICES)
PREFERRED_PORTS = {"console": 8080}
DEFAULTS = {
    "GPU_PHASE_TICK_SECONDS": "5",
    "GPU_PHASE_MIN_DWELL_SECONDS": "30",
    "CONSOLE_ALLOWED_HOSTS": "127.0.0.1,localhost",
    # Whoever signs in is who runs it, and may add any file of theirs.
    "CONSOLE_PATHS": "/",
    # The small model of this machine goes round in circles over long texts.
    "LLM_BATCH_LINES": "2",
}
"""What the user's environment may change. The models here load in seconds, so that a short dwell costs little."""
LANGUAGE_MODEL = "SmolLM2-135M-Instruct"
NOTICE = (
    f"Language model: {LANGUAGE_MODEL} (135 million parameters, on the processor). It shows that the turn is taken; "
    "it is too small to mend a transcript, and where its answer would change what was said, the original stays."
)
Models = Literal["offline", "stand-ins"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which processes with which ports and settings."""

    home: Home
    ports: Mapping[str, int]
    models: Models
    postgres_url: str
    redis_url: str

    def address(self, name: str) -> str:
        """Where one of the processes answers."""
        return f"http://{LOOPBACK}:{self.ports[name]}"

    def model_command(self, name: str) -> list[str]:
        """How a model server is started: one of SERVICES, or `language-model`."""
        module = name.replace("-", "_")
        listen = ["--host", LOOPBACK, "--port", str(self.ports[name])]
        if self.models == "stand-ins":
            return [sys.executable, "-m", "voxint_models.stub", module, *listen]
        return [sys.executable, "-m", f"voxint_models.{module}", *listen]

    def decided(self) -> dict[str, str]:
        """The settings that a standalone Voxint makes itself; the user's environment does not change them."""
        broker = self.address("broker")
        settings = {
            "VOXINT_HOME": str(self.home.folder),
            "DATABASE_URL": self.postgres_url,
            "REDIS_URL": self.redis_url,
            "MEDIA_ROOT": str(self.home.media),
            "COMPUTE_TIER": "simulated",
            "GPU_PHASE_ENABLED": "true",
            "GPU_LEASE_ACQUIRE_URL": f"{broker}/gpu/acquire",
            "GPU_LEASE_RELEASE_URL": f"{broker}/gpu/release",
            "GPU_LEASE_STATUS_URL": f"{broker}/gpu/status",
            "GPU_PHASE_SERVICES": ",".join(SERVICES),
            "SERVICE_CONTROL": "process",
            "SERVICE_STATE_DIR": str(self.home.run / "services"),
            "LLM_BASE_URL": self.address("language-model") + "/v1",
            "LLM_MODEL": LANGUAGE_MODEL,
            "LLM_NOTICE": NOTICE if self.models == "offline" else "Stand-ins in place of every model.",
            "CONSOLE_BIND": f"{LOOPBACK}:{self.ports['console']}",
            "CARD_LOCK": str(self.home.card_lock),
            "CARD_LEDGER": str(self.home.card_ledger),
        }
        for name in SERVICES:
            prefix = name.upper()
            settings[f"{prefix}_URL"] = self.address(name)
            settings[f"{prefix}_COMMAND"] = shlex.join(self.model_command(name))
        return settings

    def settings(self, environ: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
        """All settings: the defaults here, the user's environment, changes by the caller, and what is decided here."""
        defaults = {**DEFAULTS, "MODEL_THREADS": str(model_threads())}
        chosen = {name: environ.get(name, "").strip() or value for name, value in defaults.items()}
        return {**chosen, **changes, **self.decided()}

    def environment(self, environ: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
        """The environment of the processes."""
        settings = self.settings(environ, changes)
        files = {f"{name}_FILE" for name in settings}
        inherited = {name: value for name, value in environ.items() if name not in files}
        return {**inherited, **settings, "PYTHONUNBUFFERED": "1"}

    def write(self, settings: Mapping[str, str]) -> None:
        """Write voxint.env, by which the command line finds this Voxint."""
        head = (
            "# Written by `voxint standalone` at each start. Commands read it where DATABASE_URL is not set;\n"
            "# each value stands as it is, without quotes.\n"
        )
        text = head + "".join(f"{name}={value}\n" for name, value in sorted(settings.items()))
        write_privately(self.home.environment, text)


def read(home: Home) -> dict[str, str]:
    """The settings of the last start, from voxint.env.

    Raises:
        OSError: there was none.
    """
    lines = home.environment.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def model_threads() -> int:
    """Threads of one inference.

    Two servers infer at the same time, and threads that wait for each other spin: with more of them than processors an
    answer takes many times as long.
    """
    return max(1, processors() // 2)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""What a model server is started with: from the command line, and where that is silent from the environment."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Options:
    """One server's settings. `model` is a folder, a file, or None for the one that the engine comes with."""

    host: str
    port: int
    engine: str
    device: str
    model: str | None
    threads: int
    queue: int
    """Requests that may wait while one is served."""
    upload_bytes: int
    audio_seconds: float
    """The longest recording that is taken."""


def read(
    service: str,
    engines: Sequence[str],
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Options:
    """Parse a command line. Exits 2 on a wrong one.

    Where no engine is named: the first of `engines` on the CPU, the last on a GPU.
    """
    env = os.environ if environ is None else environ
    parser = argparse.ArgumentParser(
        prog=f"python -m voxint_models.{service}",
        description="Each option can be set in the environment too: --threads as MODEL_THREADS.",
    )

    def option(name: str, default: str, *, kind: type = str, choices: Sequence[str] | None = None, text: str) -> None:
        value = env.get("MODEL_" + name.upper().replace("-", "_")) or default
        # argparse checks a default that is text as if it had been typed, but for its choices
        if choices is not None and value not in choices:
            parser.error(f"MODEL_{name.upper()} is {value!r}, and may be: {', '.join(choices)}")
        parser.add_argument(f"--{name}", default=value, type=kind, choices=choices, help=f"{text} (default: {value})")

    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, required=True, help="port to listen on")
    option("engine", "", choices=("", *engines), text=f"what runs the model: {' or '.join(engines)}")
    option("device", "cpu", text="cpu, cuda or cuda:N; asked for and not there, the server does not start")
    option("path", "", text="the model's folder or file; empty: the one that comes with the engine")
    option("threads", str(min(4, os.cpu_count() or 1)), kind=int, text="CPU threads of an inference")
    option("queue", "8", kind=int, text="requests that may wait")
    option("upload-mib", "2048", kind=int, text="largest upload, in MiB")
    option("audio-hours", "12", kind=float, text="longest recording, in hours")
    found = parser.parse_args(argv)
    return Options(
        host=found.host,
        port=found.port,
        engine=found.engine or engines[0 if found.device == "cpu" else -1],
        device=found.device,
        model=found.path or None,
        threads=max(1, found.threads),
        queue=max(0, found.queue),
        upload_bytes=max(1, found.upload_mib) * MEBIBYTE,
        audio_seconds=found.audio_hours * 3600,
    )

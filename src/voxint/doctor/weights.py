"""Check: whether the weights of the model services that this machine starts are there. Their own package knows."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from voxint.doctor.finding import Finding, Severity
from voxint.gpu_phase.reasons import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxint.doctor.checks import Surroundings

_NAME = "weights"
_SERVERS = "voxint_models"
_LIMIT_SECONDS = 10
_GPU_TIERS = {"gpu", "rocm"}
"""The other tiers work with what their packages carry."""


def weights(around: Surroundings) -> list[Finding]:
    """The weights for a GPU, where the services run as processes of this machine."""
    settings = around.parts.settings
    why_not = None
    if settings.service_control != "process":
        why_not = f"the services' own containers keep them (SERVICE_CONTROL={settings.service_control})"
    elif settings.compute_tier not in _GPU_TIERS:
        why_not = f"they come with the packages (COMPUTE_TIER={settings.compute_tier})"
    elif find_spec(_SERVERS) is None:
        why_not = "the model servers are not part of this installation"
    if why_not is not None:
        return [Finding(_NAME, Severity.OFF, f"not looked at: {why_not}")]
    try:
        listed = _listed()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return [Finding(_NAME, Severity.WARN, f"could not be listed: {clean(str(error))}")]
    return [_of(row) for row in listed if row["service"] in settings.services]


def _listed() -> list[Mapping[str, Any]]:
    argv = [sys.executable, "-m", f"{_SERVERS}.weights", "list", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=_LIMIT_SECONDS)
    rows: list[Mapping[str, Any]] = json.loads(done.stdout)
    return rows


def _of(row: Mapping[str, Any]) -> Finding:
    code = f"{_NAME} {row['service']}"
    if row["there"]:
        return Finding(code, Severity.OK, clean(f"{row['name']} in {row['folder']}"))
    account = "; its publisher wants an account (HF_TOKEN)" if row["gated"] else ""
    text = (
        f"{row['name']} ({row['bytes'] / 1e6:,.1f} MB) is not in {row['folder']}{account}: run"
        f" `voxint models fetch --service {row['service']}`"
    )
    return Finding(code, Severity.WARN, clean(text))

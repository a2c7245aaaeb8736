"""The configuration of a standalone Voxint's broker: it owns the language-model process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from voxint.standalone.home import LOOPBACK, write_privately

if TYPE_CHECKING:
    from voxint.standalone.environment import Plan


def text_of(plan: Plan) -> str:
    """The file's text. A JSON string is a TOML string, and so is a list of them."""
    command = json.dumps(plan.model_command("language-model"))
    health = json.dumps(plan.address("language-model") + "/healthz")
    return (
        "# Written by `voxint standalone` at each start.\n"
        f'listen = ["{LOOPBACK}:{plan.ports["broker"]}"]\n'
        f"state_dir = {json.dumps(str(plan.home.broker))}\n"
        f'\n[[service]]\nname = "language-model"\nkind = "child"\ncommand = {command}\nready_url = {health}\n'
    )


def write(plan: Plan) -> None:
    """Write broker.toml."""
    write_privately(plan.home.broker_config, text_of(plan))

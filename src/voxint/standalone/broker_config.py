"""The configuration of a standalone Voxint's broker: it owns the language-model process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from voxint.standalone.home import LOOPBACK, write_privately

if TYPE_CHECKING:
    from voxint.standalone.environment import Plan


def text_of(plan: Plan) -> str:
    """The file's text."""
    home = plan.home
    return f"""\
# Written by `voxint standalone` at each start.
listen = [{_quoted(f"{LOOPBACK}:{plan.ports['broker']}")}]
state_dir = {_quoted(str(home.broker))}
stop_services_on_exit = true

[memory]
kind = "lock"
path = {_quoted(str(home.card_lock))}

[[service]]
name = "language-model"
kind = "child"
command = [{", ".join(_quoted(word) for word in plan.model_command("language-model"))}]
log = {_quoted(str(home.logs / "language-model.log"))}
ready_url = {_quoted(plan.address("language-model") + "/healthz")}
"""


def _quoted(text: str) -> str:
    """A TOML string, which a JSON string with its letters as they are is too."""
    return json.dumps(text, ensure_ascii=False)


def write(plan: Plan) -> None:
    """Write broker.toml."""
    write_privately(plan.home.broker_config, text_of(plan))

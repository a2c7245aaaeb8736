"""`voxint init`: asks what it cannot find out, writes `.env`, tries the broker, and says how to start."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from voxint.cli.models import IN_COMPOSE
from voxint.cli.output import CouldNotError, note, say, say_pairs

if TYPE_CHECKING:
    from voxint.init.machine import Machine

_HIDDEN = ("PASSWORD", "TOKEN", "SECRET", "KEY")
_IN_CONTAINER = {
    "DATABASE_URL": "postgresql://voxint@postgres/voxint",
    "REDIS_URL": "redis://redis:6379/0",
    "SERVICE_CONTROL": "docker",
}
"""What the compose files set themselves; for checking the rest as the containers will."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="init")(init)


def init(
    *,
    folder: Annotated[
        Path, typer.Option("--folder", help="Where the compose files lie; .env is written there.")
    ] = Path(),
    tier: Annotated[Literal["cpu", "gpu", "rocm"] | None, typer.Option(help="What the models run on.")] = None,
    sharing: Annotated[bool | None, typer.Option(help="Take turns on the GPU with a language model.")] = None,
    broker: Annotated[str, typer.Option(help="The lease broker's base address, as containers reach it.")] = "",
    token_file: Annotated[Path | None, typer.Option(help="A file that holds the broker's token.")] = None,
    llm: Annotated[str, typer.Option(help="The language model's OpenAI-compatible base address.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: options, else what was found.")] = False,
) -> None:
    """Set a host up for Docker: write .env, try the broker, and say how to start. What .env holds already stays."""
    from voxint.init import envfile, machine, plan  # noqa: PLC0415

    path = folder / ".env"
    text = _read(path, folder)
    known = envfile.read(text)
    host = machine.look(os.environ)
    _say_found(host)
    ask = _Questions(host, known, silent=yes)
    on = ask.tier(tier)
    shared = ask.sharing(sharing, on)
    lease = (ask.broker(broker), ask.token(_token(token_file))) if shared else ("", "")
    answers = plan.Answers(on, shared, *lease, llm=ask.llm(llm))
    wanted = plan.values(host, answers, known, lambda: secrets.token_urlsafe(24))
    _check(known | wanted)
    try:
        changed = envfile.changed(text, wanted)
    except ValueError as error:
        raise CouldNotError(f"{path} was not written: a value {error}.") from error
    try:
        envfile.write(path, changed)
    except OSError as error:
        raise CouldNotError(f"cannot write {path}: {error.strerror}.") from error
    _say_written(path, known, wanted)
    for line in plan.missing(host, answers):
        note(line, "warn")
    reached = _try_broker(known | wanted) if answers.sharing else True
    _say_next(folder, plan.compose_files(answers))
    _doctor(folder)
    if not reached:
        raise typer.Exit(1)


def _read(path: Path, folder: Path) -> str:
    if not (folder / "compose.yaml").is_file():
        raise CouldNotError(
            f"there is no compose.yaml in {folder.absolute()}: go to the repository, or name it by --folder."
        )
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CouldNotError(f"cannot read {path}: {why}.") from error


def _token(file: Path | None) -> str:
    try:
        return file.read_text(encoding="utf-8").strip() if file else ""
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CouldNotError(f"cannot read {file}: {why}.") from error


def _say_found(host: Machine) -> None:
    tiers = {"gpu": "an NVIDIA driver", "rocm": "an AMD driver", "cpu": "no GPU driver"}
    gid = f"{host.docker_socket}, group {host.docker_gid}" if host.docker_gid is not None else "not found"
    pairs = [("GPU", "; ".join([tiers[host.tier], *host.cards])), ("Docker socket", gid)]
    if host.render_gid is not None:
        pairs.append(("render nodes", f"group {host.render_gid}"))
    pairs.append(("time zone", host.zone or "not found: containers use UTC"))
    say("Found here", "head")
    say_pairs(pairs)


class _Questions:
    """Options first, then what the file says already, then what a person answers, or what was found."""

    def __init__(self, host: Machine, known: dict[str, str], *, silent: bool) -> None:
        self._host = host
        self._known = known
        self._silent = silent

    def tier(self, option: str | None) -> str:
        from voxint.init.plan import TIERS  # noqa: PLC0415

        default = self._known.get("COMPUTE_TIER", self._host.tier)
        while option not in TIERS:
            option = self._ask(f"What do the models run on ({', '.join(TIERS)})?", default)
            if option not in TIERS and self._silent:
                raise CouldNotError(f"COMPUTE_TIER={option} in .env is none of {', '.join(TIERS)}: give --tier.")
        return option

    def sharing(self, option: bool | None, tier: str) -> bool:  # noqa: FBT001 - an option that may be missing
        from voxint.init.plan import CAN_SHARE  # noqa: PLC0415
        from voxint.settings import TRUE  # noqa: PLC0415

        if tier not in CAN_SHARE:
            if option:
                raise CouldNotError(f"--sharing needs a GPU: there is nothing to share on the tier {tier}.")
            return False
        before = self._known.get("GPU_PHASE_ENABLED", "").lower() in TRUE
        if option is not None or self._silent:
            return before if option is None else option
        return typer.confirm("Share the GPU with a language model?", default=before, err=True)

    def broker(self, option: str) -> str:
        from voxint.init.plan import DEFAULT_BROKER  # noqa: PLC0415

        before = self._known.get("GPU_LEASE_STATUS_URL", "").removesuffix("/gpu/status")
        return option or self._ask("The broker's base address, as containers reach it?", before or DEFAULT_BROKER)

    def token(self, option: str) -> str:
        return option or self._ask("The broker's token (empty: none, or the one there is)?", "", hidden=True)

    def llm(self, option: str) -> str:
        before = self._known.get("LLM_BASE_URL", "")
        return option or self._ask("The language model's base address, ending in /v1 (empty: none)?", before)

    def _ask(self, question: str, default: str, *, hidden: bool = False) -> str:
        if self._silent:
            return default
        answer = typer.prompt(question, default=default, hide_input=hidden, show_default=bool(default), err=True)
        return str(answer).strip()


def _check(values: dict[str, str]) -> None:
    """Nothing is written that the containers would refuse.

    Raises:
        SettingsError: a line for each value that cannot be used.
    """
    from voxint.settings import load_settings  # noqa: PLC0415

    load_settings({name: value for name, value in values.items() if not name.endswith("_FILE")} | _IN_CONTAINER)


def _say_written(path: Path, known: dict[str, str], wanted: dict[str, str]) -> None:
    say("")
    say(f"Written to {path.absolute()}, readable by you alone", "head")
    for name, value in wanted.items():
        shown = "(secret)" if any(word in name for word in _HIDDEN) else value
        before = known.get(name)
        same = " (as before)" if before == value else f" (was {before})" if before and shown == value else ""
        say(f"{name}={shown}{same}")
    if "CONSOLE_PASSWORD" in wanted:
        say("The console's password stands in the file: CONSOLE_PASSWORD.")


def _try_broker(values: dict[str, str]) -> bool:
    """One status call, which changes nothing. Gives whether the broker answers as the contract has it."""
    from voxint.gpu_phase.outcomes import Failed, Free, Held  # noqa: PLC0415
    from voxint.init.plan import seen_from_the_host  # noqa: PLC0415
    from voxint.lease.client import LeaseClient  # noqa: PLC0415
    from voxint.settings import load_settings  # noqa: PLC0415

    url = seen_from_the_host(values["GPU_LEASE_STATUS_URL"])
    settings = load_settings(
        {name: value for name, value in values.items() if not name.endswith("_FILE")}
        | _IN_CONTAINER
        | {"GPU_LEASE_STATUS_URL": url}
    )
    outcome = LeaseClient(settings).status(datetime.now(UTC))  # noqa: TID251 - there is no database to ask yet
    say("")
    match outcome:
        case Free():
            say(f"The broker answers at {url}: nobody holds the GPU's lease.", "ok")
        case Held(holder=holder):
            say(f"The broker answers at {url}: {holder or 'somebody'} holds the GPU's lease.", "ok")
        case Failed(reason):
            note(
                f"The broker does not answer as it should: {reason}. Until it does, no recording is transcribed.",
                "fail",
            )
            note("docs/how-to/write-a-broker.md has a complete one, and `voxint-broker check` for any other.", "fail")
    if url != values["GPU_LEASE_STATUS_URL"]:
        note("It was asked on loopback. Containers come over the Docker bridge: it must listen there as well.")
    return not isinstance(outcome, Failed)


def _say_next(folder: Path, files: tuple[str, ...]) -> None:
    options = " ".join(f"-f {file}" for file in files)
    say("")
    say("Next", "head")
    if folder.absolute() != Path.cwd():
        say(f"  cd {folder.absolute()}")
    if "compose.cpu.yaml" not in files:  # that tier's models are in its images
        say(f"  {IN_COMPOSE} fetch   # the weights, once; HF_TOKEN for pyannote")
    say(f"  docker compose {options} up -d")
    say("  docker compose exec api voxint doctor")
    say("COMPOSE_FILE in .env names the files: the -f options may be left out.")


def _doctor(folder: Path) -> None:
    """Where the stack runs already, its own doctor says how it fares; it sees what the containers see."""
    docker = shutil.which("docker")
    if docker is None:
        return
    try:
        running = subprocess.run(
            [docker, "compose", "ps", "--quiet", "--status", "running", "api"],
            cwd=folder, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        if running.returncode == 0 and running.stdout.strip():
            note("The stack runs already, with the settings of its last `up -d`. Its doctor says:")
            subprocess.run(
                [docker, "compose", "exec", "-T", "api", "voxint", "doctor"], cwd=folder, check=False, timeout=120
            )
    except (OSError, subprocess.TimeoutExpired):  # all that was asked for is done
        note("Whether the stack runs already could not be seen: docker did not answer.")

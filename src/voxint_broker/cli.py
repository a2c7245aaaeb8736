"""The command `voxint-broker`. Data goes to stdout, errors to stderr; 0 done, 1 could not, 2 wrong usage."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voxint_broker import serving
from voxint_broker.config import Config, ConfigError, load, token_of
from voxint_broker.record import JournalError

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="voxint-broker",
    help="Stops and starts the other service on the GPU, and leases the GPU in between.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigPath = Annotated[Path, typer.Option("--config", "-c", help="The configuration file.")]
_USAGE = 2
_CALL_SECONDS = 10


@app.callback()
def _main() -> None:
    """Stops and starts the other service on the GPU, and leases the GPU in between."""


@app.command()
def serve(config: ConfigPath = Path("broker.toml")) -> None:
    """Run the broker."""
    settings = _load(config)
    serving.set_up_logs()
    try:
        serving.serve(settings)
    except ConfigError as error:
        _fail(*error.problems, code=_USAGE)
    except (serving.ListenError, JournalError) as error:
        _fail(str(error))


@app.command()
def status(
    config: ConfigPath = Path("broker.toml"),
    as_json: Annotated[bool, typer.Option("--json", help="The answer as it is.")] = False,  # noqa: FBT002
) -> None:
    """Show who holds the GPU, by asking the running broker."""
    answer = _ask(_load(config), "GET", "/gpu/status")
    if as_json:
        typer.echo(json.dumps(answer, indent=1))
        return
    for name in ("phase", "state", "holder", "lease_id", "expires_at", "since", "step", "detail", "reason"):
        if answer.get(name) is not None:
            typer.echo(f"{name:<12}{answer[name]}")


def _load(path: Path) -> Config:
    try:
        return load(path)
    except ConfigError as error:
        _fail(*error.problems, code=_USAGE)
        raise


def _ask(config: Config, method: str, path: str, body: object = None) -> dict[str, Any]:
    address = config.listen[0]
    headers = {"Content-Type": "application/json"}
    connection = http.client.HTTPConnection(address, timeout=_CALL_SECONDS)
    try:
        token = token_of(config)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        value: dict[str, Any] | object = json.loads(response.read(1 << 20))
    except ConfigError as error:
        _fail(*error.problems, code=_USAGE)
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        _fail(f"cannot ask the broker at {address}: {why}. Is it running?")
        raise
    finally:
        connection.close()
    if not isinstance(value, dict):
        _fail(f"the broker at {address} answered something that is not its own")
        raise TypeError
    if response.status >= 400:
        _fail(f"the broker at {address} answered {response.status}: {value.get('error')}")
    return value


def _fail(*lines: str, code: int = 1) -> None:
    for line in lines:
        typer.echo(line, err=True)
    raise typer.Exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    try:
        result = app(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        return 1
    except Exception as error:
        # Wrong usage, as the library for commands tells it: with a text and an exit code, and no trace.
        if not hasattr(error, "format_message"):
            raise
        typer.echo(error.format_message(), err=True)
        return _USAGE
    return int(result or 0)

"""The command `voxint-broker`. Data goes to stdout, errors to stderr; 0 done, 1 could not, 2 wrong usage."""

from __future__ import annotations

import http.client
import json
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voxint_broker import doctor as examination
from voxint_broker import logs, serving
from voxint_broker.checking import Checker, Row, Target, Verdict
from voxint_broker.config import Config, ConfigError, load, token_in, token_of
from voxint_broker.config_parts import http_url
from voxint_broker.record import JournalError
from voxint_broker.simulated import Behaviour

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
_HELD = 4
_CALL_SECONDS = 10


@app.callback()
def _main() -> None:
    """Stops and starts the other service on the GPU, and leases the GPU in between."""


@app.command()
def serve(config: ConfigPath = Path("broker.toml")) -> None:
    """Run the broker."""
    settings = _load(config)
    logs.set_up(as_json=settings.log_json)
    try:
        serving.serve(settings, reload=lambda: load(config))
    except ConfigError as error:
        _fail(*error.problems, code=_USAGE)
    except (serving.ListenError, JournalError) as error:
        _fail(str(error))


@app.command()
def status(
    *,
    config: ConfigPath = Path("broker.toml"),
    as_json: Annotated[bool, typer.Option("--json", help="The answer as it is.")] = False,
) -> None:
    """Show who holds the GPU, by asking the running broker."""
    answer = _ask(_load(config), "GET", "/gpu/status")
    if as_json:
        typer.echo(json.dumps(answer, indent=1))
        return
    for name in ("phase", "state", "holder", "lease_id", "expires_at", "since", "step", "detail", "free_mib", "reason"):
        if answer.get(name) is not None:
            typer.echo(f"{name:<12}{answer[name]}")
    for name, service in answer.get("services", {}).items():
        detail = f" ({service['detail']})" if service.get("detail") else ""
        typer.echo(f"{'service':<12}{name}: {service.get('condition') or 'unknown'}{detail}")
    for holder in answer.get("foreign", []):
        typer.echo(f"{'foreign':<12}{holder}")


@app.command()
def release(
    *,
    config: ConfigPath = Path("broker.toml"),
    lease_id: Annotated[str, typer.Argument(help="The lease; --force finds it out.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Take the GPU back from whoever holds it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Give the GPU back to the other service, for a holder that cannot do it any more."""
    settings = _load(config)
    held = _ask(settings, "GET", "/gpu/status")
    if held.get("lease_id") is None:
        typer.echo(f"nobody holds the GPU (phase {held.get('phase')})")
        return
    if not force and lease_id != held["lease_id"]:
        _fail(f"{held['holder']} holds the GPU: end its work first, or use --force", code=_HELD)
    if force and not yes:
        typer.confirm(f"{held['holder']} holds the GPU, and may be using it. Take it back?", abort=True, err=True)
    answer = _ask(settings, "POST", "/gpu/release", {"lease_id": held["lease_id"]})
    typer.echo(f"asked for: {answer.get('state')}; `voxint-broker status` shows how it goes on")


@app.command()
def doctor(config: ConfigPath = Path("broker.toml")) -> None:
    """Look at everything that the configuration names. Nothing is stopped or started."""
    findings = examination.examine(_load(config))
    for finding in findings:
        typer.echo(f"[{finding.severity.value:<4}] {finding.code:<10} {finding.text}")
    if any(finding.severity is examination.Severity.FAILURE for finding in findings):
        raise typer.Exit(1)


@app.command("dry-run")
def dry_run(config: ConfigPath = Path("broker.toml")) -> None:
    """Tell what a switch would do, without doing it."""
    for line in examination.plan(_load(config)):
        typer.echo(line)


@app.command()
def simulate(
    *,
    listen: Annotated[str, typer.Option(help="The address to answer at.")] = "127.0.0.1:9100",
    state_dir: Annotated[Path | None, typer.Option(help="The journal's folder; a new one by default.")] = None,
    start_seconds: Annotated[float, typer.Option(min=0, help="How long the made-up service needs to start.")] = 2.0,
    stop_seconds: Annotated[float, typer.Option(min=0, help="How long it needs to stop.")] = 1.0,
    linger_seconds: Annotated[float, typer.Option(min=0, help="How long its memory stays taken after that.")] = 1.0,
    start_fails: Annotated[str, typer.Option(help="Why every start fails.")] = "",
    memory_fails: Annotated[str, typer.Option(help="Why the memory cannot be read.")] = "",
) -> None:
    """Run a broker over a card and a service that are made up, to try a client with."""
    behaviour = Behaviour(start_seconds, stop_seconds, linger_seconds, start_fails, memory_fails=memory_fails)
    logs.set_up()
    with TemporaryDirectory(prefix="voxint-broker-") as folder:
        try:
            serving.simulate(listen, state_dir or Path(folder), behaviour)
        except ConfigError as error:
            _fail(*error.problems, code=_USAGE)
        except (serving.ListenError, JournalError) as error:
            _fail(str(error))


@app.command()
def check(
    *,
    url: Annotated[str, typer.Argument(help="The broker's address, as http://127.0.0.1:9100/gpu.")],
    yes: Annotated[bool, typer.Option("--yes", help="The other service may be stopped and started.")] = False,
    service_url: Annotated[
        str | None, typer.Option(help="An address of the other service, to see when it is stopped and back.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file that holds the broker's token.")] = None,
    limit: Annotated[float, typer.Option(min=1, help="Seconds that stopping and starting may take.")] = 300,
    left_alone: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for a request to be given up that nobody repeats.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON.")] = False,
) -> None:
    """Run the contract against any broker, and show row by row what it did."""
    if not yes:
        _fail(
            f"this stops the other service behind {url}, and starts it again, three times. Say --yes when it may, and when "
            "Voxint's gpu-phase worker is stopped: no broker can tell its calls from these.",
            code=_USAGE,
        )
    base = url.rstrip("/")
    for name, address in (("the broker's address", base), ("--service-url", service_url)):
        try:
            http_url(base if address is None else address)
        except ValueError as error:
            _fail(f"{name} {error}", code=_USAGE)
    try:
        token = token_in(token_file) if token_file is not None else None
    except ConfigError as error:
        _fail(*error.problems, code=_USAGE)
        raise
    target = Target(
        f"{base}/acquire", f"{base}/release", f"{base}/status", token, service_url, limit, left_alone_seconds=left_alone
    )
    rows = Checker(target, (lambda _row: None) if as_json else _show_row).run()
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=1))
    failed = [row.name for row in rows if row.verdict is Verdict.FAILED]
    if not as_json:
        typer.echo(f"{len(rows)} rows, {len(failed)} failed{': ' + ', '.join(failed) if failed else ''}")
    if failed:
        raise typer.Exit(1)


def _show_row(row: Row) -> None:
    typer.echo(f"{row.verdict.value:<5} {row.name:<32} {row.call}")
    typer.echo(f"      expected {row.expected or '-'}; got {row.got}")


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

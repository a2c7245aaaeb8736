"""The recordings of a demo, and what an earlier call left of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import voxint
from voxint.standalone.home import write_privately

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLES = Path("examples") / "speech"
ENDINGS = {".ogg", ".wav", ".mp3", ".flac", ".m4a", ".opus"}


class DemoError(RuntimeError):
    """The demo cannot go on: what, and why."""


@dataclass(frozen=True, slots=True)
class Item:
    """One recording: its name in the output, its file, and the number of its run once it is added."""

    name: str
    path: Path
    sha256: str
    run_id: int | None = None


@dataclass(frozen=True, slots=True)
class State:
    """What a call leaves for the next: so that one that was cut goes on, and a repeated one need not work again."""

    code: str
    begun_at: datetime
    runs: dict[str, int]
    """The run of each file, by the file's sha-256."""
    done_at: datetime | None = None
    seconds: float = 0.0
    """How long the call took that did it."""


def samples() -> tuple[Path, ...]:
    """The recordings of the repository.

    Raises:
        DemoError: there are none here: an installed package has no examples.
    """
    for root in (Path.cwd(), Path(voxint.__file__).parents[2]):
        found = sorted(path for path in (root / SAMPLES).glob("*") if path.suffix.lower() in ENDINGS)
        if found:
            return tuple(found)
    raise DemoError(f"there are no sample recordings in {SAMPLES}: name recordings of your own")


def items(paths: Sequence[Path]) -> tuple[Item, ...]:
    """The recordings with names that differ.

    Raises:
        DemoError: one cannot be read.
    """
    made: list[Item] = []
    for path in paths:
        if not path.is_file():
            why = "it is no plain file" if path.exists() else "there is no such file"
            raise DemoError(f"cannot read {path}: {why}")
        number, name = 1, path.stem
        while name in {item.name for item in made} | {"timeline", "data"}:
            number += 1
            name = f"{path.stem}-{number}"
        try:
            with path.open("rb") as file:
                made.append(Item(name, path.absolute(), hashlib.file_digest(file, "sha256").hexdigest()))
        except OSError as error:
            raise DemoError(f"cannot read {path}: {error.strerror or error}") from error
    return tuple(made)


def code_fingerprint() -> str:
    """What the code is, so that results of another version are not shown as this one's."""
    digest = hashlib.sha256()
    source = Path(voxint.__file__).parents[1]
    for package in ("voxint", "voxint_broker", "voxint_models"):
        for path in sorted((source / package).rglob("*.py")):
            digest.update(path.relative_to(source).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def load(path: Path) -> State | None:
    """What an earlier call left; None where nothing usable is."""
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
        done = value["done_at"]
        return State(
            str(value["code"]),
            datetime.fromisoformat(value["begun_at"]),
            {str(key): int(number) for key, number in value["runs"].items()},
            datetime.fromisoformat(done) if done else None,
            float(value["seconds"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def save(path: Path, state: State) -> None:
    """Leave it for the next call."""
    document = asdict(state)
    document["begun_at"] = state.begun_at.isoformat()
    document["done_at"] = state.done_at.isoformat() if state.done_at else None
    write_privately(path, json.dumps(document, indent=1) + "\n")

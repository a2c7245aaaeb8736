"""Whether a compose file runs the model images as they were checked. Pure: it takes the parsed file.

The answer can change at one moment only: when somebody moves an image. So that is when this trips, and its text says
what to look at again, and how.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxint.services.placement.devices import Device, device_of_providers
from voxint.services.placement.images import CHECKED_IMAGES, Choice, recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from voxint.services.placement.images import CheckedImage

    Draw = Callable[[Sequence[str], Sequence[str], int], tuple[str, ...]]

SEED_VARIABLE = "PYTHONHASHSEED"
CACHE_PATH = "CUDA_CACHE_PATH"
CACHE_SIZE = "CUDA_CACHE_MAXSIZE"
CACHE_BYTES = 1 << 30
"""The least size of CUDA's JIT cache: the kernels of two engines are about 250 MB, and must not push each other out."""

_EXACT_VERSION = re.compile(r"v?\d+(?:\.\d+){1,}[\w.-]*")


@dataclass(frozen=True, slots=True)
class Reference:
    """An image as a compose file names it: name, tag, digest."""

    name: str
    tag: str | None
    digest: str | None

    @classmethod
    def read(cls, text: str) -> Reference:
        """Take a reference apart. A port in the registry's name is no tag."""
        rest, _, digest = text.partition("@")
        head, slash, last = rest.rpartition("/")
        name, _, tag = last.partition(":")
        return cls(f"{head}{slash}{name}", tag or None, digest or None)


def problems(compose: Mapping[str, Any], draw: Draw, checked: Sequence[CheckedImage] = CHECKED_IMAGES) -> list[str]:
    """What is wrong with how a compose file runs its model images; empty where nothing is.

    Args:
        compose: the parsed file.
        draw: the order of a set of providers under a hash seed: coin.drawn_order.
        checked: the table.
    """
    found: list[str] = []
    for name, service in (compose.get("services") or {}).items():
        found += [f"{name}: {text}" for text in _service(service or {}, draw, checked)]
    return found


def reserves_gpu(service: Mapping[str, Any]) -> bool:
    """Whether a compose service may use a GPU."""
    resources = ((service.get("deploy") or {}).get("resources") or {}).get("reservations") or {}
    if any("gpu" in (device.get("capabilities") or ()) for device in resources.get("devices") or ()):
        return True
    devices = [str(device) for device in service.get("devices") or ()]
    return bool(service.get("gpus")) or any(device.startswith(("/dev/kfd", "/dev/dri")) for device in devices)


def _service(service: Mapping[str, Any], draw: Draw, checked: Sequence[CheckedImage]) -> Iterable[str]:
    environment = service.get("environment") or {}
    if not isinstance(environment, dict):
        yield "its environment is a list: write it as a mapping, so that overlays change single values"
        return
    row = None
    if "image" in service:
        reference = Reference.read(str(service["image"]))
        row = _row(reference, checked)
        if row is None and reserves_gpu(service):
            yield _unchecked(reference, checked)
            return
    if row is not None and row.choice is Choice.SET_ORDER:
        yield from _drawn(row, environment, draw)
    elif SEED_VARIABLE in environment:
        yield (
            f"{SEED_VARIABLE} is set, and its image does not need it: take it out, as it turns off Python's hash "
            "randomisation, which guards against hash flooding"
        )
    if row is not None:
        for name, value in row.required:
            if str(environment.get(name)) != value:
                yield f"{name} must be {value!r} (it is {environment.get(name)!r}): anything else may take the CPU silently"
    if CACHE_PATH in environment or (row is not None and row.jit_cache):
        yield from _cache(service, environment)


def _row(reference: Reference, checked: Sequence[CheckedImage]) -> CheckedImage | None:
    for row in checked:
        if row.image == reference.name and (
            row.digest == reference.digest
            if row.digest or reference.digest
            else row.version == reference.tag and _EXACT_VERSION.fullmatch(reference.tag or "") is not None
        ):
            return row
    return None


def _unchecked(reference: Reference, checked: Sequence[CheckedImage]) -> str:
    last = next((row for row in checked if row.image == reference.name), None)
    text = (
        f"nobody checked how {reference.name}{f':{reference.tag}' if reference.tag else ''}"
        f"{f'@{reference.digest}' if reference.digest else ' (it is not pinned by digest)'} chooses its device"
    )
    if last is None or not last.source_path:
        return f"{text}: look at it as docs/how-to/check-a-new-image.md says, and add a row to images.py"
    target = f"{reference.name}@{reference.digest or '<digest>'}"
    return (
        f"{text}; the last one checked is {last.version}. Run this, then change its row in images.py as "
        f"docs/how-to/check-a-new-image.md says:\n{recipe(last, target)}"
    )


def _drawn(row: CheckedImage, environment: Mapping[str, Any], draw: Draw) -> Iterable[str]:
    if row.seed is None:
        yield f"its row in images.py says {row.choice.value} and names no seed"
        return
    if str(environment.get(SEED_VARIABLE)) != str(row.seed):
        yield (
            f"{SEED_VARIABLE} must be {str(row.seed)!r} (it is {environment.get(SEED_VARIABLE)!r}): without it "
            f"{row.version} draws its device anew at each start"
        )
    order = draw(row.providers, row.left_out, row.seed)
    if device_of_providers(order) in {None, Device.CPU}:
        yield (
            f"{SEED_VARIABLE}={row.seed} puts {order[0] if order else 'nothing'} first: run this, and write the seed "
            f"that puts the GPU first into images.py and the compose file:\n{recipe(row, row.reference)}"
        )


def _cache(service: Mapping[str, Any], environment: Mapping[str, Any]) -> Iterable[str]:
    path = str(environment.get(CACHE_PATH) or "")
    if not path:
        yield f"{CACHE_PATH} is not set: the first request after each recreate compiles every kernel anew (75 s for one read)"
    elif not any(_below(path, target) for target in _kept_folders(service)):
        yield f"{CACHE_PATH}={path} is on no volume of the service: a recreate throws the cache away"
    try:
        size = int(str(environment.get(CACHE_SIZE)))
    except ValueError:
        size = 0
    if size < CACHE_BYTES:
        yield f"{CACHE_SIZE} must be at least {CACHE_BYTES} (it is {environment.get(CACHE_SIZE)!r}): kernels push each other out"


def _kept_folders(service: Mapping[str, Any]) -> Iterable[str]:
    for volume in service.get("volumes") or ():
        if isinstance(volume, str):
            parts = volume.split(":")
            if len(parts) > 1 and "ro" not in parts[2:]:
                yield parts[1]
        elif volume.get("type") in {"volume", "bind"} and not volume.get("read_only"):
            yield str(volume.get("target", ""))


def _below(path: str, folder: str) -> bool:
    folder = folder.rstrip("/")
    return bool(folder) and (path == folder or path.startswith(f"{folder}/"))

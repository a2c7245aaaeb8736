"""The table of checked images: how each model image chooses its device, and what that asks of the compose files.

A row is written by a person who ran the recipe of docs/how-to/check-a-new-image.md. A digest that nobody could read is
not in it: such an image stays at an exact version, and its row says that it was not checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import StrEnum


class Choice(StrEnum):
    """How an image's programs come to their device."""

    SET_ORDER = "set-order"  # a list made of a set: the hash seed draws it at each start
    SORTED = "sorted"  # the program puts the GPU first itself
    SETTING = "setting"  # an explicit setting, which fails loudly when the device is not there


@dataclass(frozen=True, slots=True)
class CheckedImage:
    """One row. `digest` is None where it could not be read, and then nothing of the row is called checked."""

    image: str
    """The image's name, without tag and digest."""
    version: str
    digest: str | None
    service: str
    tier: str
    choice: Choice
    how: str
    """Where in the image the choice is made, in words."""
    seed: int | None = None
    """The hash seed that puts the GPU first; only for `set-order`."""
    python: str | None = None
    """The version of the image's interpreter, which the seed was checked for."""
    providers: tuple[str, ...] = ()
    """The runtime's own list of providers in the image, in its order."""
    left_out: tuple[str, ...] = ()
    """Those that the program never uses."""
    jit_cache: bool = False
    """Whether its kernels are compiled on first use, so that the cache must outlive the container."""
    required: tuple[tuple[str, str], ...] = ()
    """Environment that its placement depends on, besides the seed."""
    checked_on: date | None = None
    source_path: str = ""
    """The file inside the image that makes the choice."""
    python_path: str = "python3"

    @property
    def checked(self) -> bool:
        """Whether a person checked exactly this image."""
        return self.digest is not None and self.checked_on is not None

    @property
    def reference(self) -> str:
        """How a compose file names it."""
        return f"{self.image}@{self.digest}" if self.digest else f"{self.image}:{self.version}"


SPEACHES = "ghcr.io/speaches-ai/speaches"


def _built_here(service: str) -> CheckedImage:
    """An image of our own Dockerfile: it has no digest until somebody builds it."""
    return CheckedImage(
        image=f"voxint-{service}",
        version="0.1.0-cuda",
        digest=None,
        service=service,
        tier="gpu",
        choice=Choice.SETTING,
        how="MODEL_DEVICE: a device that is not there ends the start, and /healthz reads back where the model is",
        jit_cache=True,
        required=(("MODEL_DEVICE", "cuda"),),
    )


CHECKED_IMAGES = (
    CheckedImage(
        image=SPEACHES,
        version="v0.8.1",
        digest="sha256:6ec12ebf890a17e0d4b242a8ba9e0eb1fb836e60e8a3c857aea9838d541579ac",
        service="speaches",
        tier="gpu",
        choice=Choice.SET_ORDER,
        how="Kokoro and Piper hand onnxruntime a list made of a set of provider names; Whisper has a setting",
        seed=0,
        python="3.12.10",
        providers=("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"),
        left_out=("TensorrtExecutionProvider",),
        jit_cache=True,
        required=(("WHISPER__INFERENCE_DEVICE", "cuda"),),
        # From public files: the check was made and published by others. The image was not pulled by this project.
        checked_on=date(2026, 9, 25),
        source_path="/home/ubuntu/speaches/src/speaches/executors/kokoro/model_manager.py",
        python_path="/home/ubuntu/speaches/.venv/bin/python",
    ),
    _built_here("whisper"),
    _built_here("pyannote"),
    _built_here("titanet"),
)
"""Every model image that the compose files may name."""


def recipe(image: CheckedImage, reference: str) -> str:
    """The commands that show how an image chooses, to be run where it can be pulled. No GPU is needed.

    Args:
        image: the row of the image's last checked version, for the paths inside.
        reference: the image to look at, with its digest.
    """
    left_out = ", ".join(f'\\"{name}\\"' for name in image.left_out) or ""
    without = f" - {{{left_out}}}" if left_out else ""
    return (
        f"docker run --rm --entrypoint sh {reference} -c '\n"
        f"  {image.python_path} --version\n"
        f'  grep -n "providers" {image.source_path}\n'
        "  for seed in 0 1 2 3; do\n"
        f'    PYTHONHASHSEED=$seed {image.python_path} -c "import onnxruntime as o; '
        f'print($seed, list(set(o.get_available_providers()){without}))"\n'
        "  done'"
    )

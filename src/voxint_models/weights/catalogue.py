"""The weights that the engines for GPUs take: fixed by revision, every file with its size and SHA-256.

Sizes and digests are those which public repositories that pin the same revisions state; they were not read from the
publishers themselves. No file here was loaded in this project's own tests: docs/reference/tested.md says so.
"""

from __future__ import annotations

from dataclasses import dataclass

GITHUB_RELEASES = "https://github.com/k2-fsa/sherpa-onnx/releases/download"


@dataclass(frozen=True)
class File:
    """One file of a model: its place in the model's folder, its size in bytes, its SHA-256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Weights:
    """One model. `gated`: its publisher wants an account that has accepted the licence, and HF_TOKEN with it."""

    service: str
    name: str
    revision: str
    licence: str
    page: str
    files: tuple[File, ...]
    gated: bool = False
    address: str = "{hub}/{name}/resolve/{revision}/{path}"
    """Where a file is, with {hub}, {name}, {revision} and {path} to be filled in."""

    @property
    def size(self) -> int:
        """All of it, in bytes."""
        return sum(file.size for file in self.files)

    @property
    def folder(self) -> str:
        """Its folder under the models' root; another revision is another folder."""
        return f"{self.name.replace('/', '--')}@{self.revision}"


CATALOGUE = (
    Weights(
        service="whisper",
        name="Systran/faster-whisper-large-v3",
        revision="edaa852ec7e145841d8ffdb056a99866b5f0a478",
        licence="MIT",
        page="https://huggingface.co/Systran/faster-whisper-large-v3",
        files=(
            File("config.json", 2_394, "a9306624f5ec14270a014b647e5c316b6e03a662c369758d1b90697a7b0655b9"),
            File("model.bin", 3_087_284_237, "69f74147e3334731bc3a76048724833325d2ec74642fb52620eda87352e3d4f1"),
            File("preprocessor_config.json", 340, "7ccc62c6f2765af1f3b46c00c9b5894426835a05021c8b9c01eecb6dfb542711"),
            File("tokenizer.json", 2_480_617, "6d8cbd7cd0d8d5815e478dac67b85a26bbe77c1f5e0c6d76d1ce2abc0e5f21ca"),
            File("vocabulary.json", 1_068_114, "c69260f2ab26d659b7c398f9a2b2b48ed0df16c3b47d7326782fd9cba71690c1"),
        ),
    ),
    Weights(
        service="pyannote",
        name="pyannote/speaker-diarization-community-1",
        revision="3533c8cf8e369892e6b79ff1bf80f7b0286a54ee",
        licence="CC-BY-4.0",
        page="https://huggingface.co/pyannote/speaker-diarization-community-1",
        gated=True,
        files=(
            File("config.yaml", 444, "5ce2bfa9a938dc132cec1172592d65173cbb8f444ea1e4133f10f9391de155be"),
            File(
                "segmentation/pytorch_model.bin",
                5_906_507,
                "7ad24338d844fb95985486eb1a464e32d229f6d7a03c9abe60f978bacf3f816e",
            ),
            File(
                "embedding/pytorch_model.bin",
                26_646_242,
                "6f10ff60898a1d185fa22e1d11e0bfa8a92efec811f11bca48cb8cafebefd929",
            ),
            File("plda/plda.npz", 133_852, "9b77bcd840692710dd3496f62ecfeed8d8e5f002fd991b785079b244eab7d255"),
            File(
                "plda/xvec_transform.npz", 134_376, "325f1ce8e48f7e55e9c8aa47e05d2766b7c48c4b25b8de8dd751e7a4cc5fbe8f"
            ),
        ),
    ),
    Weights(
        service="titanet",
        name="nemo_en_titanet_large",
        revision="speaker-recongition-models",  # the release's own spelling
        licence="CC-BY-4.0",
        page="https://catalog.ngc.nvidia.com/orgs/nvidia/teams/nemo/models/titanet_large",
        address=GITHUB_RELEASES + "/{revision}/{path}",
        files=(
            File(
                "nemo_en_titanet_large.onnx",
                101_405_493,
                "d51abcf31717ef28162f26acb9d44dd4127c3d44c9b8624f699f3425daca8e77",
            ),
        ),
    ),
)


def of(service: str) -> Weights:
    """The weights of a service. Raises KeyError."""
    for weights in CATALOGUE:
        if weights.service == service:
            return weights
    raise KeyError(service)

"""What llama.cpp is told: one conversation at a time, nothing kept of past ones, and no door for others."""

import sys
from types import SimpleNamespace

import pytest

from voxint_models.language_model import llama
from voxint_models.serving.errors import CannotServeError, WeightsMissingError
from voxint_models.serving.options import read


class Library:
    """In xllamacpp's place: it keeps what its server was made with."""

    def __init__(self, *devices):
        self.devices = [{"name": name} for name in devices]
        self.made = []

    def get_device_info(self):
        return self.devices

    def CommonParams(self):  # noqa: N802 - the library's own name
        return SimpleNamespace(
            model=SimpleNamespace(path=""), cpuparams=SimpleNamespace(n_threads=0), cache_ram_mib=8192
        )

    def Server(self, wish):  # noqa: N802 - the library's own name
        self.made.append(wish)
        return wish


@pytest.fixture
def library(monkeypatch):
    made = Library("CPU")
    monkeypatch.setitem(sys.modules, "xllamacpp", made)
    return made


def options(*more):
    return read("language_model", ["llama"], ["--port", "1", "--threads", "3", *more], {})


def test_memory_does_not_grow_with_the_conversations(library, tmp_path):
    weights = tmp_path / "small.gguf"
    weights.touch()
    llama.load(options("--path", str(weights)))
    (wish,) = library.made
    assert wish.cache_ram_mib == 0
    assert (wish.n_parallel, wish.n_ctx, wish.cpuparams.n_threads) == (1, llama.CONTEXT_TOKENS, 3)
    assert wish.model.path == str(weights)


def test_its_own_port_is_open_to_nobody(library, tmp_path):
    weights = tmp_path / "small.gguf"
    weights.touch()
    for _ in range(2):
        llama.load(options("--path", str(weights)))
    first, second = library.made
    assert first.hostnames == ["127.0.0.1"]
    assert len(first.api_keys[0]) >= 32
    assert first.api_keys != second.api_keys


def test_a_gpu_that_is_not_there_and_weights_that_are_not_there(library, tmp_path):
    with pytest.raises(CannotServeError, match="finds only: CPU"):
        llama.load(options("--device", "cuda"))
    with pytest.raises(WeightsMissingError, match="give the path of a GGUF file"):
        llama.load(options("--path", str(tmp_path / "none.gguf")))
    assert library.made == []

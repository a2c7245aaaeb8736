import io
import pickle
import struct
from collections import OrderedDict

import numpy as np
import pytest

from voxint_models.audio import RATE
from voxint_models.serving.errors import WeightsMissingError
from voxint_models.voices import ge2e
from voxint_models.voices.checkpoint import load
from voxint_models.voices.mel import mel_filters


@pytest.fixture(scope="module")
def encoder():
    return ge2e.VoiceEncoder()


def test_the_encoder_gives_what_the_original_in_pytorch_gives(encoder):
    """The six largest numbers of a vector, of a chirp and a tone: from the original code, within 1e-5."""
    t = np.arange(2 * RATE) / RATE
    sound = (0.2 * np.sin(2 * np.pi * (120 * t + 40 * t * t)) + 0.1 * np.sin(2 * np.pi * 700 * t)).astype(np.float32)
    vector = encoder.embed(sound)
    places = [87, 89, 125, 124, 183, 173]
    assert np.argsort(-vector)[:6].tolist() == places
    assert vector[places] == pytest.approx([0.20763, 0.20556, 0.19211, 0.18672, 0.18558, 0.17762], abs=1e-5)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_a_window_sees_its_own_place_in_the_recording(encoder):
    rng = np.random.default_rng(5)
    sound = rng.normal(0, 0.1, 4 * RATE).astype(np.float32)
    inside, at_the_start = encoder._frames(sound, RATE), encoder._frames(sound[RATE:], 0)
    # two frames reach back before the window: there is sound in one, and nothing in the other
    assert (inside[2:] == at_the_start[2:]).all()
    assert (inside[:2] != at_the_start[:2]).any()
    assert encoder.windows(sound, [0, RATE]).shape == (2, ge2e.DIMENSION)
    assert encoder.windows(sound, []).shape == (0, ge2e.DIMENSION)


@pytest.mark.parametrize("length", [0, 1, 100, RATE, 2 * RATE])
def test_any_length_gives_a_finite_unit_vector(encoder, length):
    vector = encoder.embed(np.full(length, 0.01, np.float32))
    assert np.isfinite(vector).all()
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-4)


def test_quiet_speech_is_raised_and_loud_speech_is_left():
    quiet, loud = (np.full(100, level, np.float32) for level in (1e-3, 0.5))
    assert np.sqrt(np.mean(ge2e.raised(quiet) ** 2)) == pytest.approx(10 ** (-30 / 20), rel=1e-3)
    assert (ge2e.raised(loud) == loud).all()
    assert np.isfinite(ge2e.raised(np.zeros(10, np.float32))).all()
    assert len(ge2e.raised(np.zeros(0, np.float32))) == 0


def test_mel_filters_are_triangles_of_area_one():
    filters = mel_filters(40, 400)
    assert filters.shape == (40, 201)
    hertz_a_bin = RATE / 400
    assert filters[10:].sum(axis=1) * hertz_a_bin == pytest.approx(np.ones(30), rel=0.05)
    peaks = filters.argmax(axis=1)
    assert (np.diff(peaks) > 0).all()


def test_without_the_package_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr(ge2e, "find_spec", lambda name: None)
    with pytest.raises(WeightsMissingError, match="make setup"):
        ge2e.weights_file()


class Named:
    """Pickles itself as a call of a function by name."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def checkpoint(path, value, storages=()):
    """Write a file of the old form with `value` and the storages' bytes."""
    out = io.BytesIO()
    for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, value, [key for key, _ in storages]):
        out.write(pickle.dumps(part, protocol=2))
    for _, data in storages:
        out.write(struct.pack("<q", len(data)))
        out.write(np.asarray(data, np.float32).tobytes())
    path.write_bytes(out.getvalue())
    return path


def test_a_checkpoint_that_wants_more_than_arrays_is_refused(tmp_path):
    touched = tmp_path / "touched"
    path = checkpoint(tmp_path / "evil.pt", {"model_state": Named(type(touched).touch, touched)})
    with pytest.raises(pickle.UnpicklingError, match="refused"):
        load(path, "model_state")
    assert not touched.exists()


def test_plain_values_and_ordered_mappings_are_read(tmp_path):
    path = checkpoint(tmp_path / "plain.pt", {"model_state": OrderedDict(a=1), "step": 3})
    assert load(path, "model_state") == {}


def tensor_file(tmp_path, size, stride, offset=0, announced=6):
    """A file with one array, written opcode by opcode as PyTorch's pickler writes it."""
    body = (
        b"\x80\x02}X\x0b\x00\x00\x00model_state}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
        b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK"
        + bytes([announced])
        + b"Ntq\x01Q"
        + pickle.dumps(offset, 2)[2:-1]
        + pickle.dumps(size, 2)[2:-1]
        + pickle.dumps(stride, 2)[2:-1]
        + b"\x89NtRss."
    )
    out = b"".join(pickle.dumps(part, 2) for part in (1, 2, 3)) + body + pickle.dumps(["0"], 2)
    path = tmp_path / "tensor.pt"
    path.write_bytes(out + struct.pack("<q", 6) + np.arange(6, dtype=np.float32).tobytes())
    return path


def test_an_array_is_read_with_its_strides(tmp_path):
    found = load(tensor_file(tmp_path, (2, 3), (3, 1)), "model_state")
    assert found["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    turned = load(tensor_file(tmp_path, (3, 2), (1, 3)), "model_state")
    assert turned["w"].tolist() == [[0, 3], [1, 4], [2, 5]]
    part = load(tensor_file(tmp_path, (2,), (2,), offset=1), "model_state")
    assert part["w"].tolist() == [1, 3]


@pytest.mark.parametrize(
    ("size", "stride", "offset"), [((2, 4), (4, 1), 0), ((2,), (1,), 5), ((1,), (1,), -1), ((2,), (-1,), 3)]
)
def test_an_array_beyond_its_storage_is_refused(tmp_path, size, stride, offset):
    with pytest.raises(pickle.UnpicklingError, match="beyond"):
        load(tensor_file(tmp_path, size, stride, offset), "model_state")


def test_a_storage_of_another_length_is_refused(tmp_path):
    with pytest.raises(pickle.UnpicklingError, match="announced"):
        load(tensor_file(tmp_path, (1,), (1,), announced=9), "model_state")

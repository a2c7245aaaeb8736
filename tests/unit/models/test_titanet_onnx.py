"""The TitaNet engine on a tiny graph with TitaNet's inputs and outputs, and NeMo's features against their definition."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from voxint_models.audio import RATE
from voxint_models.serving.errors import CannotServeError, WeightsMissingError
from voxint_models.serving.options import Options
from voxint_models.titanet import titanet_onnx
from voxint_models.titanet.features import features

DIMENSION = 12


def graph(path, *, sound="audio_signal", vector="embs", bands=80, named=True, scale=1.0):
    """The mean over time of each band, through a fixed matrix: a network as small as they come."""
    rng = np.random.default_rng(7)
    matrix = (scale * rng.normal(0, 1, (bands, DIMENSION))).astype(np.float32)
    nodes = [
        helper.make_node("ReduceMax", [sound, "axes"], ["top"], keepdims=0),
        helper.make_node("MatMul", ["top", "matrix"], ["found"]),
        helper.make_node("Cast", ["length"], ["as_float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["as_float", "zero"], ["nothing"]),
        helper.make_node("Add", ["found", "nothing"], [vector]),
        helper.make_node("Identity", [vector], ["logits"]),
    ]
    made = helper.make_graph(
        nodes,
        "titanet",
        [
            helper.make_tensor_value_info(sound, TensorProto.FLOAT, ["batch", bands, "frames"]),
            helper.make_tensor_value_info("length", TensorProto.INT64, ["batch"]),
        ],
        [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", DIMENSION]),
            helper.make_tensor_value_info(vector, TensorProto.FLOAT, ["batch", DIMENSION if named else "size"]),
        ],
        [
            numpy_helper.from_array(matrix, "matrix"),
            numpy_helper.from_array(np.array([2], np.int64), "axes"),
            numpy_helper.from_array(np.array(0, np.float32), "zero"),
        ],
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


def options(path, device="cpu"):
    return Options("127.0.0.1", 1, "onnx", device, str(path), 1, 2, 1000, 60)


def noise(seconds, seed=1):
    return np.random.default_rng(seed).normal(0, 0.1, int(seconds * RATE)).astype(np.float32)


@pytest.mark.parametrize("named", [True, False])
def test_a_graph_is_loaded_tried_and_gives_unit_vectors(tmp_path, named):
    engine = titanet_onnx.load(options(graph(tmp_path / "titanet.onnx", named=named)))
    engine.warm_up()
    assert engine.dimension == DIMENSION
    assert engine.device() == "cpu"
    assert engine.model == "titanet"
    assert engine.versions()["onnxruntime"]
    one, same, other = (engine.embed(noise(2, seed)) for seed in (1, 1, 2))
    assert np.linalg.norm(one) == pytest.approx(1, abs=1e-5)
    assert (one == same).all()
    assert not np.allclose(one, other)
    assert engine.embed(noise(0.01)).shape == (DIMENSION,)


def test_a_folder_with_the_graph_will_do_and_one_without_says_what_to_run(tmp_path):
    graph(tmp_path / "nemo_en_titanet_large.onnx")
    assert titanet_onnx.load(options(tmp_path)).dimension == DIMENSION
    with pytest.raises(WeightsMissingError, match="voxint models fetch --service titanet"):
        titanet_onnx.load(options(tmp_path / "none"))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"sound": "input"}, "no TitaNet graph"),
        ({"vector": "out"}, "no TitaNet graph"),
        ({"bands": 64}, "64 mel bands"),
    ],
)
def test_another_graph_is_not_served(tmp_path, wrong, says):
    with pytest.raises(CannotServeError, match=says):
        titanet_onnx.load(options(graph(tmp_path / "other.onnx", **wrong)))


def test_a_graph_that_gives_nothing_is_not_served(tmp_path):
    with pytest.raises(CannotServeError, match="no usable vector"):
        titanet_onnx.load(options(graph(tmp_path / "dead.onnx", scale=0.0))).warm_up()


def test_a_card_that_is_not_there_is_not_made_up_for(tmp_path, monkeypatch):
    path = graph(tmp_path / "titanet.onnx")
    with pytest.raises(CannotServeError, match="built without CUDA"):
        titanet_onnx.load(options(path, "cuda"))
    # the library was built with CUDA, and cannot start it: it goes on with the CPU and only warns
    monkeypatch.setattr(titanet_onnx.onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(titanet_onnx, "gpus", lambda: 1)
    with (
        pytest.warns(UserWarning, match="CUDAExecutionProvider"),
        pytest.raises(CannotServeError, match="put the graph on cpu"),
    ):
        titanet_onnx.load(options(path, "cuda:0"))


def test_a_card_that_is_not_there_is_said_before_weights_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(titanet_onnx.onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(titanet_onnx, "gpus", lambda: 1)
    with pytest.raises(CannotServeError, match="cuda:1 was asked for, and CUDA's driver finds 1 GPUs"):
        titanet_onnx.load(options(tmp_path / "none.onnx", "cuda:1"))


def test_without_a_driver_there_is_no_card(monkeypatch):
    def none(_name):
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(titanet_onnx.ctypes, "CDLL", none)
    assert titanet_onnx.gpus() == 0


@pytest.mark.parametrize(("status", "cards", "found"), [(0, 2, 2), (100, 2, 0)])
def test_the_driver_is_asked(monkeypatch, status, cards, found):
    class Driver:
        def __init__(self, _name):
            pass

        def cuInit(self, _flags):  # noqa: N802 - the driver's own names
            return status

        def cuDeviceGetCount(self, into):  # noqa: N802
            into._obj.value = cards
            return 0

    monkeypatch.setattr(titanet_onnx.ctypes, "CDLL", Driver)
    assert titanet_onnx.gpus() == found


def test_the_device_is_what_the_session_says(tmp_path):
    engine = titanet_onnx.load(options(graph(tmp_path / "titanet.onnx")))

    class OnCard:
        def get_providers(self):
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]

        def get_provider_options(self):
            return {"CUDAExecutionProvider": {"device_id": "1"}}

    engine._session = OnCard()
    assert engine.device() == "cuda:1"


@pytest.mark.parametrize("seconds", [0.01, 0.4, 1.0, 3.21])
def test_each_band_is_brought_to_mean_nought_and_deviation_one(seconds):
    found, count = features(noise(seconds))
    assert count == max(1, int(seconds * RATE) // 160)
    assert found.shape[0] == 80
    assert found.shape[1] % 16 == 0
    assert 0 <= found.shape[1] - count < 16
    assert (found[:, count:] == 0).all()
    inside = found[:, :count]
    assert inside.mean(axis=1) == pytest.approx(np.zeros(80), abs=1e-4)
    if count > 10:
        assert inside.std(axis=1, ddof=1) == pytest.approx(np.ones(80), abs=1e-3)
    assert np.isfinite(found).all()


def test_a_tone_that_begins_lights_its_band_at_its_time():
    t = np.arange(2 * RATE) / RATE
    tone = np.where(t >= 1, 0.5 * np.sin(2 * np.pi * 1000 * t), 0).astype(np.float32)
    found, _ = features(tone + noise(2) * 1e-3)
    # 1000 Hz is mel 15 of 45.2 on Slaney's scale, whose bands are 45.2 / 81 apart
    band = round(15 / ((15 + np.log(8) * 27 / np.log(6.4)) / 81)) - 1
    assert abs(int((found[:, 130] - found[:, 60]).argmax()) - band) <= 1
    assert found[band, :95].max() < found[band, 105:195].min()

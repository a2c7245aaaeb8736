"""The pyannote.audio engine on the library itself: a pipeline in the layout of the real one, its weights random.

Skipped where pyannote.audio is not installed, as in the project's own environment: it takes six gigabytes. To run it:
install requirements/pyannote-cuda.txt and pytest into an environment of its own.
"""

import copy

import numpy as np
import pytest

audio = pytest.importorskip("pyannote.audio")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

CONFIG = """
dependencies:
  pyannote.audio: 4.0.0
pipeline:
  name: pyannote.audio.pipelines.SpeakerDiarization
  params:
    clustering: VBxClustering
    segmentation: $model/segmentation
    segmentation_batch_size: 4
    embedding: $model/embedding
    embedding_batch_size: 4
    embedding_exclude_overlap: true
    plda: $model/plda
params:
  clustering:
    threshold: 0.6
    Fa: 0.07
    Fb: 0.8
  segmentation:
    min_duration_off: 0.0
"""
VECTOR, PROJECTED = 256, 128


def save(model, folder):
    import torch

    checkpoint = {
        "state_dict": model.state_dict(),
        "hyper_parameters": dict(model.hparams),
        "pytorch-lightning_version": "2.0.0",
    }
    model.on_save_checkpoint(checkpoint)
    folder.mkdir(parents=True)
    torch.save(checkpoint, folder / "pytorch_model.bin")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import torch
    from pyannote.audio.core.task import Problem, Resolution, Specifications
    from pyannote.audio.models.embedding import WeSpeakerResNet34
    from pyannote.audio.models.segmentation import PyanNet

    made = tmp_path_factory.mktemp("pipeline")
    torch.manual_seed(1)
    segmentation = PyanNet(lstm={"hidden_size": 8, "num_layers": 1}, linear={"hidden_size": 8, "num_layers": 1})
    segmentation.specifications = Specifications(
        problem=Problem.MONO_LABEL_CLASSIFICATION,
        resolution=Resolution.FRAME,
        duration=5.0,
        min_duration=None,
        warm_up=(0.0, 0.0),
        classes=["speaker#1", "speaker#2", "speaker#3"],
        powerset_max_classes=2,
        permutation_invariant=True,
    )
    segmentation.build()
    # so that there is speech, and now and then two at once: the classes are silence, 1, 2, 3, 1+2, 1+3, 2+3
    with torch.no_grad():
        segmentation.classifier.weight.mul_(20)
        segmentation.classifier.bias[0] -= 5
    save(segmentation, made / "segmentation")
    embedding = WeSpeakerResNet34()
    embedding.specifications = Specifications(
        problem=Problem.REPRESENTATION,
        resolution=Resolution.CHUNK,
        duration=5.0,
        min_duration=None,
        warm_up=(0.0, 0.0),
        classes=None,
        permutation_invariant=False,
    )
    embedding.build()
    save(embedding, made / "embedding")
    rng = np.random.default_rng(1)
    (made / "plda").mkdir()
    np.savez(
        made / "plda" / "xvec_transform.npz",
        mean1=rng.normal(0, 0.1, VECTOR),
        mean2=rng.normal(0, 0.1, PROJECTED),
        lda=rng.normal(0, 1, (VECTOR, PROJECTED)),
    )
    np.savez(
        made / "plda" / "plda.npz",
        mu=rng.normal(0, 0.1, PROJECTED),
        tr=np.linalg.qr(rng.normal(0, 1, (PROJECTED, PROJECTED)))[0],
        psi=np.linspace(5, 0.1, PROJECTED),
    )
    (made / "config.yaml").write_text(CONFIG)
    return made


def options(path, device="cpu"):
    from voxint_models.serving.options import Options

    return Options("127.0.0.1", 1, "pyannote.audio", device, str(path), 2, 2, 1 << 20, 600)


@pytest.fixture(scope="module")
def engine(folder):
    from voxint_models.pyannote.engines import load

    made = load(options(folder))
    made.warm_up()
    return made


def noise(seconds):
    rng = np.random.default_rng(2)
    level = np.repeat(rng.uniform(0.01, 0.5, int(seconds)), 16_000)
    return (rng.normal(0, 1, len(level)) * level).clip(-1, 1).astype(np.float32)


def test_the_pipeline_is_loaded_from_its_folder_alone(engine, folder):
    assert engine.device() == "cpu"
    assert engine.model == folder.stem
    assert set(engine.versions()) >= {"pyannote.audio", "torch"}


def test_turns_lie_in_the_recording_with_overlaps_marked(engine):
    from voxint_models.serving.service import Cancel

    turns = engine.diarize(noise(12), 1, None, Cancel())
    assert turns
    assert all(0 <= turn.start < turn.end <= 12 for turn in turns)
    for turn in turns:
        others = [o for o in turns if o.speaker != turn.speaker and o.start < turn.end and turn.start < o.end]
        assert turn.overlap == bool(others)
    assert any(turn.overlap for turn in turns)


def test_one_speaker_where_one_was_asked_for(engine):
    from voxint_models.serving.service import Cancel

    assert len({turn.speaker for turn in engine.diarize(noise(12), 1, 1, Cancel())}) == 1


@pytest.mark.parametrize("samples", [np.zeros(0, np.float32), np.zeros(160_000, np.float32), noise(1)[:3000], noise(1)])
def test_short_and_silent_recordings_do_not_hurt(engine, samples):
    from voxint_models.serving.service import Cancel

    assert isinstance(engine.diarize(samples, 1, None, Cancel()), list)


def test_it_stops_when_nobody_waits_any_more(engine):
    from voxint_models.serving.errors import CancelledError
    from voxint_models.serving.service import Cancel

    cancel = Cancel()
    cancel.set()
    with pytest.raises(CancelledError):
        engine.diarize(noise(12), 1, None, cancel)


def test_the_device_moves_with_the_weights(engine):
    import torch

    network = engine._pipeline._segmentation.model
    engine._pipeline._segmentation.model = copy.deepcopy(network).to(torch.device("meta"))
    try:
        assert engine.device() == "meta"
    finally:
        engine._pipeline._segmentation.model = network


def test_a_card_that_is_not_there_is_not_made_up_for(folder):
    import torch

    from voxint_models.pyannote.engines import load
    from voxint_models.serving.errors import CannotServeError

    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(CannotServeError, match="PyTorch finds 0 GPUs"):
        load(options(folder, "cuda"))

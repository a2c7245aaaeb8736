"""The tripwire on a compose file: silent on one that runs the images as checked, and each break of it must trip it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from voxint.services.placement.coin import drawn_order
from voxint.services.placement.images import CHECKED_IMAGES, SPEACHES, CheckedImage, Choice, recipe
from voxint.services.placement.tripwire import Reference, problems, reserves_gpu

(ROW,) = (row for row in CHECKED_IMAGES if row.image == SPEACHES)
GPU = {"resources": {"reservations": {"devices": [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]}}}
GOOD = {
    "services": {
        "speaches": {
            "image": ROW.reference,
            "environment": {
                "PYTHONHASHSEED": "0",
                "WHISPER__INFERENCE_DEVICE": "cuda",
                "CUDA_CACHE_PATH": "/cache/huggingface/cuda-jit/speaches",
                "CUDA_CACHE_MAXSIZE": "1073741824",
            },
            "volumes": ["model-cache:/cache/huggingface"],
            "deploy": GPU,
        },
        "postgres": {"image": "postgres:18", "volumes": ["data:/var/lib/postgresql"]},
        "whisper": {
            "build": ".",
            "image": "voxint-whisper:0.1.0-cuda",
            "environment": {
                "MODEL_DEVICE": "cuda",
                "CUDA_CACHE_PATH": "/models/cuda-cache",
                "CUDA_CACHE_MAXSIZE": "1073741824",
            },
            "volumes": ["models:/models"],
            "deploy": GPU,
        },
    }
}


def changed(change):
    compose = deepcopy(GOOD)
    change(compose["services"])
    return problems(compose, drawn_order)


def set_environment(**values):
    def change(services):
        for name, value in values.items():
            if value is None:
                del services["speaches"]["environment"][name]
            else:
                services["speaches"]["environment"][name] = value

    return change


def set_image(image):
    return lambda services: services["speaches"].update(image=image)


def test_a_file_that_runs_the_images_as_checked_is_silent():
    assert problems(GOOD, drawn_order) == []
    assert problems({}, drawn_order) == []
    assert problems({"services": {"a": None}}, drawn_order) == []


NEW_DIGEST = "sha256:" + "0" * 64
BREAKS = [
    (set_image(f"{SPEACHES}@{NEW_DIGEST}"), "nobody checked how"),
    (set_image(f"{SPEACHES}:v0.8.2"), "not pinned by digest"),
    (set_image(f"{SPEACHES}:v0.8.1"), "not pinned by digest"),
    (set_image(f"{SPEACHES}:latest"), "not pinned by digest"),
    (set_image("somebody/else:1.0"), "add a row to images.py"),
    (set_environment(PYTHONHASHSEED=None), "draws its device anew at each start"),
    (set_environment(PYTHONHASHSEED="1"), "must be '0' (it is '1')"),
    (set_environment(PYTHONHASHSEED="random"), "must be '0'"),
    (set_environment(WHISPER__INFERENCE_DEVICE="auto"), "may take the CPU silently"),
    (set_environment(WHISPER__INFERENCE_DEVICE=None), "WHISPER__INFERENCE_DEVICE must be 'cuda'"),
    (set_environment(CUDA_CACHE_PATH=None), "compiles every kernel anew"),
    (set_environment(CUDA_CACHE_PATH="/home/ubuntu/.nv/ComputeCache"), "on no volume"),
    (set_environment(CUDA_CACHE_PATH="/cache/huggingface-other"), "on no volume"),
    (set_environment(CUDA_CACHE_MAXSIZE=None), "CUDA_CACHE_MAXSIZE must be at least 1073741824"),
    (set_environment(CUDA_CACHE_MAXSIZE="1073741823"), "CUDA_CACHE_MAXSIZE must be at least"),
    (set_environment(CUDA_CACHE_MAXSIZE="1 GiB"), "CUDA_CACHE_MAXSIZE must be at least"),
    (lambda services: services["speaches"].update(volumes=["cache:/cache/huggingface:ro"]), "on no volume"),
    (
        lambda services: services["speaches"].update(volumes=[{"type": "tmpfs", "target": "/cache/huggingface"}]),
        "on no volume",
    ),
    (lambda services: services["speaches"].update(environment=["PYTHONHASHSEED=0"]), "write it as a mapping"),
    (lambda services: services["whisper"]["environment"].update(PYTHONHASHSEED="0"), "does not need it"),
    (lambda services: services["whisper"]["environment"].update(MODEL_DEVICE="cpu"), "MODEL_DEVICE must be 'cuda'"),
    (lambda services: services["whisper"].update(image="voxint-whisper:latest"), "nobody checked how voxint-whisper"),
    (lambda services: services["postgres"].update(environment={"PYTHONHASHSEED": "0"}), "does not need it"),
    (
        lambda services: services["whisper"]["environment"].update(CUDA_CACHE_PATH="/tmp/x"),
        "whisper: CUDA_CACHE_PATH=/tmp/x is on no volume",
    ),
]


@pytest.mark.parametrize(("change", "says"), BREAKS)
def test_each_break_trips_it(change, says):
    assert says in "\n".join(changed(change))


def test_moving_the_image_says_what_to_run():
    (text,) = changed(set_image(f"{SPEACHES}@{NEW_DIGEST}"))
    assert f"docker run --rm --entrypoint sh {SPEACHES}@{NEW_DIGEST} -c '" in text
    assert "for seed in 0 1 2 3" in text
    assert ROW.source_path in text
    assert "docs/how-to/check-a-new-image.md" in text
    assert "v0.8.1" in text


def test_a_seed_that_puts_the_cpu_first_trips_it():
    firsts = {seed: drawn_order(ROW.providers, ROW.left_out, seed)[0] for seed in range(4)}
    cpu = next(seed for seed, first in firsts.items() if first == "CPUExecutionProvider")
    compose = deepcopy(GOOD)
    compose["services"]["speaches"]["environment"]["PYTHONHASHSEED"] = str(cpu)
    found = problems(compose, drawn_order, [replace(ROW, seed=cpu)])
    assert any(f"PYTHONHASHSEED={cpu} puts CPUExecutionProvider first" in text for text in found)


def test_a_set_order_row_without_a_seed_trips_it():
    assert any("names no seed" in text for text in problems(GOOD, drawn_order, [replace(ROW, seed=None)]))


def test_a_sorted_version_must_drop_the_seed():
    newer = replace(ROW, digest=NEW_DIGEST, version="v0.8.2", choice=Choice.SORTED, seed=None)
    compose = deepcopy(GOOD)
    compose["services"]["speaches"]["image"] = newer.reference
    assert any("does not need it" in text for text in problems(compose, drawn_order, [newer]))
    del compose["services"]["speaches"]["environment"]["PYTHONHASHSEED"]
    assert problems(compose, drawn_order, [newer, *CHECKED_IMAGES[1:]]) == []


def test_an_image_whose_digest_nobody_could_read_stays_at_an_exact_version_and_is_not_called_checked():
    row = CheckedImage("example/asr", "1.4.2-cuda", None, "whisper", "gpu", Choice.SETTING, "a setting")
    assert not row.checked
    compose = {"services": {"asr": {"image": "example/asr:1.4.2-cuda", "deploy": GPU}}}
    assert problems(compose, drawn_order, [row]) == []
    for floating in ("1.4", "latest", "1.4.2-cuda@" + NEW_DIGEST):
        compose["services"]["asr"]["image"] = f"example/asr:{floating}"
        assert problems(compose, drawn_order, [row]), floating
    floating_row = replace(row, version="latest")
    compose["services"]["asr"]["image"] = "example/asr:latest"
    assert problems(compose, drawn_order, [floating_row])


PASSWORD = {"CONSOLE_PASSWORD": "a password for tests alone"}
"""The one thing that the files ask of everybody."""
FILES = ("compose.yaml", "compose.gpu.yaml", "compose.gpu-phase.yaml", "compose.service-controls.yaml")


def test_the_repository_s_own_files_run_the_images_as_checked():
    from compose_render import render

    for count in range(2, len(FILES) + 1):
        compose = render(FILES[:count], PASSWORD)
        assert problems(compose, drawn_order) == []
        gpu = {name for name, service in compose["services"].items() if reserves_gpu(service)}
        assert gpu == {"whisper", "pyannote", "titanet", "speaches"}
    assert problems(render(["compose.yaml", "compose.cpu.yaml"], PASSWORD), drawn_order) == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (ROW.digest, NEW_DIGEST, "nobody checked how"),
        ('PYTHONHASHSEED: "0"', 'PYTHONHASHSEED: "2"', "draws its device anew"),
        ("CUDA_CACHE_PATH: /cache/huggingface/cuda-jit/speaches", "CUDA_CACHE_PATH: /tmp/jit", "on no volume"),
        ("WHISPER__INFERENCE_DEVICE: cuda", "WHISPER__INFERENCE_DEVICE: auto", "may take the CPU silently"),
    ],
)
def test_and_a_change_of_them_trips_it(monkeypatch, old, new, says):
    import compose_render
    import yaml

    load = compose_render.load

    def changed_load(name):
        text = (compose_render.ROOT / name).read_text()
        if name != "compose.gpu.yaml":
            return load(name)
        assert old in text
        return yaml.safe_load(text.replace(old, new))

    monkeypatch.setattr(compose_render, "load", changed_load)
    found = problems(compose_render.render(["compose.yaml", "compose.gpu.yaml"], PASSWORD), drawn_order)
    assert len(found) == 1
    assert says in found[0]


def test_the_rows_themselves():
    for row in CHECKED_IMAGES:
        assert (row.choice is Choice.SET_ORDER) == (row.seed is not None)
        assert row.digest is None or (row.digest.startswith("sha256:") and len(row.digest) == 71)
        assert row.how
        assert row.checked == (row.digest is not None)
        if row.choice is Choice.SET_ORDER:
            assert row.checked
            assert row.python
            assert row.providers


def test_other_seeds_really_disagree():
    for row in CHECKED_IMAGES:
        if row.choice is Choice.SET_ORDER:
            firsts = {drawn_order(row.providers, row.left_out, seed)[0] for seed in range(8)}
            assert len(firsts) == 2, "if every seed agrees, the seed is not needed and must go"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ghcr.io/a/b@sha256:1", ("ghcr.io/a/b", None, "sha256:1")),
        ("ghcr.io/a/b:v1@sha256:1", ("ghcr.io/a/b", "v1", "sha256:1")),
        ("localhost:5000/a:2", ("localhost:5000/a", "2", None)),
        ("localhost:5000/a", ("localhost:5000/a", None, None)),
        ("redis:8", ("redis", "8", None)),
    ],
)
def test_references(text, parts):
    found = Reference.read(text)
    assert (found.name, found.tag, found.digest) == parts


def test_who_reserves_a_gpu():
    assert reserves_gpu({"deploy": GPU})
    assert reserves_gpu({"gpus": "all"})
    assert reserves_gpu({"devices": ["/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri"]})
    assert not reserves_gpu({"devices": ["/dev/fuse:/dev/fuse"]})
    assert not reserves_gpu({})


def test_the_recipe_runs_and_shows_both_orders(tmp_path):
    """What a person would run in the image, run here with an onnxruntime that only names its providers."""
    import shlex
    import subprocess
    import sys

    (tmp_path / "onnxruntime.py").write_text(f"def get_available_providers(): return {list(ROW.providers)!r}\n")
    source = tmp_path / "model_manager.py"
    source.write_text("x = 1\nsession = InferenceSession(model, providers=list(available_providers))\n")
    words = shlex.split(recipe(replace(ROW, python_path=sys.executable, source_path=str(source)), ROW.reference))
    assert words[:-1] == ["docker", "run", "--rm", "--entrypoint", "sh", ROW.reference, "-c"]
    ran = subprocess.run(
        ["sh", "-c", words[-1]],
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("Python 3.")
    assert lines[1] == "2:session = InferenceSession(model, providers=list(available_providers))"
    assert [line.split(" ", 1) for line in lines[2:]] == [
        [str(seed), str(list(drawn_order(ROW.providers, ROW.left_out, seed)))] for seed in range(4)
    ]

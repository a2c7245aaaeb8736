"""The coin flip, made again in processes with a hash seed each: no GPU, no Docker, no network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from voxint.services.placement.coin import AGREEING_PYTHONS, drawn_order, firsts
from voxint.services.placement.images import CHECKED_IMAGES, Choice

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
DRAWN = [row for row in CHECKED_IMAGES if row.choice is Choice.SET_ORDER]


@pytest.fixture(scope="module")
def drawn():
    (row,) = DRAWN
    return firsts(row.providers, row.left_out, range(64))


def test_this_python_is_one_of_those_that_agree():
    oldest, newest = AGREEING_PYTHONS
    assert oldest <= sys.version_info[:2] <= newest


def test_of_64_seeds_35_put_the_gpu_first_and_29_the_cpu(drawn):
    assert Counter(drawn.values()) == {CUDA: 35, CPU: 29}


def test_of_the_first_16_seeds_7_put_the_gpu_first_and_9_the_cpu(drawn):
    assert Counter(drawn[seed] for seed in range(16)) == {CUDA: 7, CPU: 9}


def interpreters(version):
    """Where this version may be: on the path, or beside the others that pyenv keeps."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    return [found for found in (shutil.which(f"python{version}"), *map(str, kept)) if found]


def answers(python):
    done = subprocess.run([python, "-S", "-c", "print(1)"], capture_output=True, text=True, check=False)
    return done.stdout == "1\n"


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_another_python_draws_the_same(drawn, version):
    python = next(filter(answers, interpreters(version)), None)
    if python is None:
        pytest.skip(f"there is no python{version} on this machine")
    (row,) = DRAWN
    assert firsts(row.providers, row.left_out, range(16), python) == {seed: drawn[seed] for seed in range(16)}


def test_seed_0_puts_the_gpu_first(drawn):
    assert drawn[0] == CUDA
    assert drawn_order(DRAWN[0].providers, DRAWN[0].left_out, 0) == (CUDA, CPU)


def test_both_are_always_listed_so_that_a_list_alone_tells_nothing():
    orders = {drawn_order(DRAWN[0].providers, DRAWN[0].left_out, seed) for seed in range(8)}
    assert orders == {(CUDA, CPU), (CPU, CUDA)}


def test_one_seed_gives_one_order_however_often_it_is_drawn():
    seeds = [seed for seed in (0, 1, 2) for _ in range(3)]
    orders = {(seed, drawn_order(DRAWN[0].providers, DRAWN[0].left_out, seed)) for seed in seeds}
    assert len(orders) == 3


def test_what_the_program_leaves_out_is_not_drawn():
    assert "TensorrtExecutionProvider" not in drawn_order(DRAWN[0].providers, DRAWN[0].left_out, 0)
    assert "TensorrtExecutionProvider" in drawn_order(DRAWN[0].providers, (), 0)


def test_a_sorted_list_needs_no_seed():
    """What a fixed version does: with the GPU sorted to the front, every seed gives one order."""
    priority = {CUDA: 100}
    orders = {
        tuple(sorted(drawn_order(DRAWN[0].providers, DRAWN[0].left_out, seed), key=lambda name: -priority.get(name, 0)))
        for seed in range(8)
    }
    assert orders == {(CUDA, CPU)}

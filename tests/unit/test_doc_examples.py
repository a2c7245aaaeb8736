"""The examples in the documents are right as far as that can be told without running them; the others are run by
tests/integration/test_doc_examples_run.py."""

import json
from dataclasses import fields
from datetime import UTC, datetime

import pytest
from doc_examples import (
    NOT_RUN,
    OUTPUT,
    Example,
    all_examples,
    commands,
    examples,
    lines_of_shell,
    parts_of_line,
    problems,
)

from voxint.alerts.watch import Message

EXAMPLES = all_examples()


def test_there_are_examples_of_every_kind():
    blocks = [each for each in EXAMPLES if each.block]
    assert len(blocks) > 40
    assert len(EXAMPLES) - len(blocks) > 60
    assert {each.language for each in blocks} == {"", "sh", "json", "yaml", "mermaid"}


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_is_right(example):
    assert problems(example) == []


def test_every_reason_for_not_running_something_is_still_used():
    programs = {words[0] for each in EXAMPLES for words in commands(each)}
    assert set(NOT_RUN) - programs == set()
    for page, begin in OUTPUT:
        assert any(each.page == page and each.text.startswith(begin) for each in EXAMPLES), begin


BROKEN = [
    ("```\nvoxint gpu-phase hold --fore 2h\n```", "--fore"),
    ("```\nvoxint runs requeue\n```", "RUN"),
    ("```\ndocker compose exec api voxint doktor\n```", "doktor"),
    ("```\ndocker compose exec -T apy voxint doctor\n```", "apy"),
    ("```\ndocker compose -f compose.yml up -d\n```", "compose.yml"),
    ("```\ndocker compose upp -d\n```", "upp"),
    ("```sh\nvoxint-broker serve --config a.toml --fast\n```", "--fast"),
    ("```\nmake demoo\n```", "demoo"),
    ("```\nmake demo AUDIOS=a.wav\n```", "AUDIOS"),
    ("```\nGPU_PHASE_WINDOWS=22-07\n```", "GPU_PHASE_WINDOWS"),
    ("```\nGPU_FASE_ENABLED=true\n```", "GPU_FASE_ENABLED"),
    ('```\nAPI_TOKEN="a token in quotes"\n```', "API_TOKEN"),
    ("```json\n{'a': 1}\n```", "property name"),
    ("```yaml\nservices:\n  whispr: {image: a}\n```", "whispr"),
    ("```yaml\nservices: [\n```", "flow"),
    ("```\nterraform apply\n```", "terraform"),
    ("```perl\nprint 1\n```", "perl"),
    ("As in `voxint runs export 7 --format docs --tooo x`.", "--tooo"),
    ("As in `voxint runs exports 7`.", "exports"),
    ("As in `make ckeck`.", "ckeck"),
    ("    make ckeck   # it is", "ckeck"),
    ("1. so:\n\n   ```\n   make ckeck\n   ```\n", "ckeck"),
    ("```\ntrue && \\\n  make ckeck\n```", "ckeck"),
]


@pytest.mark.parametrize(("page", "named"), BROKEN, ids=[named for _, named in BROKEN])
def test_a_broken_example_is_found(page, named):
    found = [problem for each in examples("page.md", page) for problem in problems(each)]
    assert any(named in problem for problem in found), found


def test_lines_that_go_on_and_open_quotes_are_one_command():
    text = "$ curl -s \\\n   http://a/b\nan answer\n$ sh -c '\n one\n two'\nanother\n"
    assert lines_of_shell(text) == ["curl -s     http://a/b", "sh -c '\n one\n two'"]
    assert parts_of_line("A=b voxint doctor > out.txt && make check # a word") == [
        ["voxint", "doctor"],
        ["make", "check"],
    ]


def test_a_block_without_a_fence_is_an_example_too():
    (found,) = examples("page.md", "Do this:\n\n    make demo   # it works\n    make test\n\nand then\n")
    assert found == Example("page.md", 3, "", "make demo   # it works\nmake test\n")


def test_the_alert_that_is_shown_is_what_the_webhook_gets():
    (shown,) = (json.loads(each.text) for each in EXAMPLES if each.language == "json")
    at = datetime(2026, 11, 30, 12, tzinfo=UTC)
    values = {"code": "error", "text": "The GPU could not be handed back: ...", "since": at, "ended_at": None}
    message = Message(**{each.name: values.get(each.name, 1) for each in fields(Message)})
    assert message.document() == shown

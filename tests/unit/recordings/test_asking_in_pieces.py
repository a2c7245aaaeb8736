import threading
from types import SimpleNamespace

from voxint.llm.client import Reply
from voxint.recordings.asking import Question, ask
from voxint.recordings.transcript import Line

LINES = [Line(number, number, number + 1, "a", f"line {number}") for number in range(4)]


def unreadable(_lines, _text):
    raise ValueError("no JSON")


QUESTION = Question(
    messages=lambda lines: [{"role": "user", "content": "x"}], read=unreadable, schema={}, tokens=lambda lines: 100
)


class Model:
    """Answers with what is cut off after so many tokens."""

    def __init__(self, written):
        self.written = written
        self.calls = 0

    def chat(self, messages, **_options):
        self.calls += 1
        return Reply("{", cut=True, model="m", prompt_tokens=None, completion_tokens=self.written)


def asked(model):
    claim = SimpleNamespace(lost=threading.Event(), last_attempt=False)
    context = SimpleNamespace(claim=claim, check_claim=lambda: None, progress=lambda _share: None)
    return list(ask(context, model, [LINES], QUESTION))


def test_an_answer_that_the_server_cut_is_asked_for_in_halves():
    model = Model(60)
    parts = asked(model)
    assert model.calls == 7
    assert [len(part.lines) for part in parts] == [1, 1, 1, 1]


def test_one_that_used_up_all_our_room_goes_round_in_circles_and_is_asked_for_once():
    model = Model(100)
    (part,) = asked(model)
    assert model.calls == 1
    assert part.lines == LINES
    assert "on and on" in part.why


def test_a_server_that_counts_nothing_is_asked_in_halves():
    model = Model(None)
    asked(model)
    assert model.calls == 7

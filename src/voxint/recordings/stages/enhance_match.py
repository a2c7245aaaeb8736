"""Stage enhance_match: names for the speakers, and the language model's repair of the text, checked line by line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voxint.llm.client import LlmClient
from voxint.recordings.asking import Question, ask
from voxint.recordings.repair import (
    FEWEST_FOR_OVERLAP,
    SCHEMA,
    Repaired,
    answer_tokens,
    batches,
    before_each,
    question,
    repaired_from,
)
from voxint.recordings.roster import enter
from voxint.recordings.speakers import Voice, numbered
from voxint.recordings.transcript import Line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxint.recordings.stages.context import StageContext


def repair_question(lines: Sequence[Line], *, with_before: bool) -> Question[dict[int, Repaired]]:
    """The question for the pieces of one transcript."""
    before = before_each(lines) if with_before else {}
    return Question(
        messages=lambda piece: question(piece, before.get(piece[0].id, ())),
        read=repaired_from,
        schema=SCHEMA,
        tokens=answer_tokens,
    )


def enhance_match(context: StageContext) -> dict[str, Any]:
    """Name the speakers and repair the text."""
    made = context.result("diarize_embed")
    lines = [Line.from_document(each) for each in made["lines"]]
    labels = [line.speaker for line in lines if line.speaker is not None]
    repair = Repair(context, LlmClient(context.settings, "ENHANCE"))
    repair.run(lines)
    return {
        "speakers": _named(labels, _roster(context)),
        "llm": repair.to_document(lines),
        "lines": {
            str(line.id): {"text": repair.found[line.id].text, "kept": repair.found[line.id].kept}
            for line in lines
            if line.id in repair.found
        },
    }


def _roster(context: StageContext) -> dict[str, dict[str, Any]]:
    """What the roster says of each voice, by label. Entered under the claim: a copy that lost it enters nothing."""
    made = context.result("diarize_embed")
    voices = [Voice.from_document(each) for each in made["speakers"]]
    if not made["voice_model"]:
        return {}
    with context.owning() as connection:
        return {} if connection is None else enter(connection, context.run.id, str(made["voice_model"]), voices)


def _named(labels: Sequence[str], known: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """A name for each speaker: the roster's, else a number in the order of appearance."""
    return {
        label: {
            "name": known.get(label, {}).get("name") or number,
            "known": bool(known.get(label, {}).get("name")),
            "speaker_id": known.get(label, {}).get("speaker_id"),
            "likeness": known.get(label, {}).get("likeness"),
        }
        for label, number in numbered(labels).items()
    }


@dataclass
class Repair:
    """The repair of one transcript, batch by batch."""

    context: StageContext
    client: LlmClient
    found: dict[int, Repaired] = field(default_factory=dict)
    model: str | None = None
    skipped: str | None = None
    troubles: list[str] = field(default_factory=list)

    def run(self, lines: Sequence[Line]) -> None:
        """Repair all lines, or say in `skipped` why none was."""
        if not self.client.configured:
            self.skipped = "no language model is set up" if self.context.settings.llm_enabled else "LLM_ENABLED is off"
            return
        if not lines:
            self.skipped = "there is no text"
            return
        settings = self.context.settings
        asked = repair_question(lines, with_before=settings.llm_batch_lines >= FEWEST_FOR_OVERLAP)
        pieces = batches(lines, settings.llm_batch_lines, settings.llm_batch_tokens)
        for part in ask(self.context, self.client, pieces, asked):
            self.model = part.model or self.model
            if part.value is None:
                self.troubles.append(part.why or "no answer")
                self.found.update({line.id: Repaired(line.text, part.why) for line in part.lines})
            else:
                self.found.update(part.value)
        if self.troubles:
            kept = sum(1 for each in self.found.values() if each.kept is not None)
            self.context.warn(f"{kept} lines stay as they were heard: {self.troubles[0]}")

    def to_document(self, lines: Sequence[Line]) -> dict[str, Any]:
        """What was done, for the record."""
        if self.skipped is not None:
            return {"status": "skipped", "why": self.skipped, "model": None}
        changed = sum(1 for line in lines if self.found[line.id].text != line.text)
        kept = sum(1 for line in lines if self.found[line.id].kept is not None)
        return {
            "status": "done",
            "model": self.model or self.context.settings.llm_model,
            "lines": len(lines),
            "changed": changed,
            "kept": kept,
        }

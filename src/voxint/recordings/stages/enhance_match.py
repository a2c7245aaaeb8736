"""Stage enhance_match: names for the speakers, and the language model's repair of the text, checked line by line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voxint.llm.client import LlmClient, LlmError, LlmTooLongError, LlmUnusableError
from voxint.recordings.errors import AttemptFailed
from voxint.recordings.repair import SCHEMA, Repaired, answer_tokens, batches, question, repaired_from
from voxint.recordings.roster import enter
from voxint.recordings.speakers import Voice, numbered
from voxint.recordings.stages.services import calls
from voxint.recordings.transcript import Line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxint.llm.client import Reply
    from voxint.recordings.stages.context import StageContext


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
    if context.engine is None or not made["voice_model"]:
        return {}
    with context.engine.begin() as connection:
        context.notes.own(connection)
        return enter(connection, context.run.id, str(made["voice_model"]), voices)


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
    """The repair of one transcript: batch by batch, and in halves where a batch is too large for the model."""

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
        groups = batches(lines)
        for place, batch in enumerate(groups):
            self.context.check_claim()
            self._batch(batch)
            self.context.progress((place + 1) / len(groups))
        if self.troubles:
            kept = sum(1 for each in self.found.values() if each.kept is not None)
            self.context.warn(f"{kept} lines stay as they were heard: {self.troubles[0]}")

    def _batch(self, batch: Sequence[Line]) -> None:
        try:
            with calls(self.context, "the language model"):
                reply = self.client.chat(
                    question(batch), max_tokens=answer_tokens(batch), schema=SCHEMA, lost=self.context.claim.lost
                )
        except LlmTooLongError as error:
            self._halves(batch, str(error))
        except LlmUnusableError as error:
            self._keep(batch, str(error))
        except (LlmError, AttemptFailed) as error:
            # A transcript without repair is worth more than none: what ends the last attempt is only told.
            if not self.context.claim.last_attempt:
                raise AttemptFailed(str(error)) from None
            self._keep(batch, str(error))
        else:
            self._take(batch, reply)

    def _take(self, batch: Sequence[Line], reply: Reply) -> None:
        self.model = reply.model or self.model
        try:
            self.found.update(repaired_from(batch, reply.text))
        except ValueError as error:
            if reply.cut:
                self._halves(batch, f"the answer was cut off ({error})")
            else:
                self._keep(batch, str(error))

    def _halves(self, batch: Sequence[Line], why: str) -> None:
        if len(batch) == 1:
            self._keep(batch, why)
            return
        middle = len(batch) // 2
        self._batch(batch[:middle])
        self._batch(batch[middle:])

    def _keep(self, batch: Sequence[Line], why: str) -> None:
        self.troubles.append(why)
        self.found.update({line.id: Repaired(line.text, why) for line in batch})

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

"""Job translation: the transcript in another language, line for line. Times and ids never move."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from voxint.recordings.asking import Question, ask
from voxint.recordings.jobs.source import DATA_NOTE, client_for, lines_in, listed, pieces_of, transcript_of
from voxint.recordings.repair import SCHEMA, Repaired, before_each, texts_by_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxint.recordings.stages.context import StageContext
    from voxint.recordings.transcript import Line

_MARKUP = re.compile(r"https?://|www\.|\]\(|<[a-zA-Z/!]")
_REFUSAL = re.compile(
    r"\A\W*(i\s*['\u2019]?\s*a?m sorry|sorry|i apologi[sz]e)\b[^.]{0,30}"
    r"\b(can(no|['\u2019])t|unable|not able|won['\u2019]t)\b"
    r"|\bas an? (ai|artificial intelligence|(large )?language model)\b",
    re.IGNORECASE,
)
"""A model that will not translate. People in recordings say that they are sorry too: it takes more than that."""


def translation(context: StageContext) -> dict[str, Any]:
    """Translate every line; what fails twice stays in the language that was spoken, and is marked."""
    language = str(context.options.get("language") or "")
    transcript = transcript_of(context)
    lines = lines_in(transcript)
    found: dict[int, Repaired] = {}
    model = None
    if lines:
        client = client_for(context, "TRANSLATE")
        question = _question(language, before_each(lines))
        for _ in range(2):
            left = [line for line in lines if line.id not in found or found[line.id].kept is not None]
            for part in ask(context, client, pieces_of(context, left), question) if left else ():
                model = part.model or model
                found.update(part.value or {line.id: Repaired(line.text, part.why) for line in part.lines})
    kept = [line.id for line in lines if found[line.id].kept is not None]
    if kept:
        context.warn(f"{len(kept)} lines stay untranslated ({language}): {found[kept[0]].kept}")
    done = {
        "model": model or context.settings.llm_model,
        "lines": {str(line.id): {"text": found[line.id].text, "kept": found[line.id].kept} for line in lines},
    }
    before = context.results.get("translation", {}).get("languages", {})
    return {"languages": {**before, language: done}}


def translated_in(lines: Sequence[Line], reply: str) -> dict[int, Repaired]:
    """Each line after the model's answer, by its id.

    Raises:
        ValueError: the answer has no lines, or lines that were not asked for.
    """
    texts = texts_by_id(lines, reply)
    return {line.id: judged(line.text, texts.get(line.id)) for line in lines}


def judged(original: str, proposed: str | None) -> Repaired:
    """A translation that can be one, else the original with the reason."""
    text = " ".join((proposed or "").split())
    if not text:
        return Repaired(original, "not in the answer")
    if _REFUSAL.search(text) and not _REFUSAL.search(original):
        return Repaired(original, "the language model refused")
    if len(text) > 4 * len(original) + 40:
        return Repaired(original, "it is much longer")
    if len(text) * 8 < len(original):
        return Repaired(original, "it is much shorter")
    if _MARKUP.search(text) and not _MARKUP.search(original):
        return Repaired(original, "links or markup were added")
    return Repaired(text)


def _question(language: str, before: Mapping[int, list[str]]) -> Question[dict[int, Repaired]]:
    instructions = (
        f"You translate the lines of a transcript into the language with the code {language!r}. {DATA_NOTE} "
        "Translate each line for itself; keep names and numbers; do not merge, split, add or leave out lines. "
        'Form: {"lines": [{"id": 1, "text": "..."}, ...]}, with every id that you were given, once. What stands in '
        '"before" was said right before these lines: it helps to understand them, and is not translated.'
    )
    return Question(
        messages=lambda lines: [
            {"role": "system", "content": instructions},
            {"role": "user", "content": listed(lines, before=before.get(lines[0].id, ()))},
        ],
        read=translated_in,
        schema=SCHEMA,
        tokens=lambda lines: 256 + sum(32 + 2 * len(line.text.encode()) for line in lines),
    )

"""A made day on one GPU: changes of phase, recordings in every state, a transcript with its sound. For pages to look at.

Nothing here was measured: it is what a day could look like, put into a database as the phase task and the workers would
have left it.
"""

from __future__ import annotations

import functools
import io
import json
import wave
from datetime import timedelta
from pathlib import Path

import av
from sqlalchemy import insert, text

from voxint.db import clock
from voxint.db.tables import GPU_PHASE, GPU_PHASE_EVENT, RUN, SPEAKER, SPEAKER_VOICE, STAGE_EXECUTION, WORK_ITEM
from voxint.recordings.exports.document import SpokenLine, Transcript
from voxint.recordings.versions import freeze

SPEECH = Path(__file__).parents[2] / "examples" / "speech"
STAGES = (
    ("acquire", "gpu", 2),
    ("prepare", "gpu", 4),
    ("transcribe", "gpu", 95),
    ("diarize_embed", "gpu", 70),
    ("enhance_match", "post", 80),
    ("finalize", "post", 1),
)
TURN = (
    ("llm", "draining_post", "work_waits", 0),
    ("draining_post", "acquiring", "post_drained", 18),
    ("acquiring", "starting_services", "granted", 42),
    ("starting_services", "audio", "services_healthy", 75),
    ("audio", "draining", "queue_empty", None),
    ("draining", "stopping_services", "drained", 40),
    ("stopping_services", "releasing", "services_stopped", 12),
    ("releasing", "llm", "released", 95),
)
WINDOWS = ((22.4, 48), (19.1, 25), (15.2, 95), (11.0, 30), (7.6, 64), (3.1, 41))
"""Audio windows: hours ago, and minutes long."""
TITLES = (
    ("Quarterly review with the Lisbon office", "done", 3312),
    ("Interview 14, retired lighthouse keeper", "done", 5127),
    ("Museum: planning the new room", "done", 0),
    ("Podcast episode 88, raw tracks", "done", 2904),
    ("Board meeting, part two", "failed", 4410),
    ("Lecture: the history of paper", "queued", 5540),
    ("Choir rehearsal, spoken parts only", "queued", 1260),
    ("Interview 15, bookbinder", "queued", 3015),
    ("Town hall, questions and answers", "queued", 6180),
)


def made_phase(engine, phase="llm", **columns):
    """The history of a day, and the row that it ends in."""
    with engine.begin() as connection:
        now = clock.read(connection)
        rows, since = [], now - timedelta(hours=26)
        rows.append(event(since, None, "llm", "first_tick", None))
        for hours, minutes in WINDOWS:
            at = now - timedelta(hours=hours)
            for before, after, cause, takes in TURN:
                at += timedelta(minutes=minutes) if takes is None else timedelta(seconds=takes)
                rows.append(event(at, before, after, cause, (at - since).total_seconds()))
                since = at
        connection.execute(insert(GPU_PHASE_EVENT), rows)
        values = {"phase": phase, "phase_since": since, "ticked_at": now, "llm_ready": phase == "llm"}
        connection.execute(insert(GPU_PHASE).values(**values, llm_checked_at=now, **columns))
    return now


def event(at, before, after, cause, seconds):
    depths = dict.fromkeys(("gpu_waiting", "gpu_running", "post_waiting", "post_running"), 0)
    return {"at": at, "from_phase": before, "to_phase": after, "cause": cause, "seconds": seconds, **depths}


def made_recordings(engine, media_root):
    """Recordings in every state; gives the number of the one with a transcript and a sound."""
    chosen = None
    sample(), sound_seconds()  # before the transaction: a busy machine takes its time
    with engine.begin() as connection:
        now = clock.read(connection)
        for place, (title, status, seconds) in enumerate(TITLES):
            added = now - timedelta(hours=9, minutes=-47 * place)
            run_id = _run(connection, title, status, seconds or sound_seconds(), added)
            if status == "done":
                _executions(connection, run_id, added)
            if seconds == 0:
                chosen = run_id
        _voices(connection, chosen)
        freeze(connection, transcript(chosen), "made from the recording")
        _sound(connection, chosen, Path(media_root))
        _more(connection, chosen, now)
    return chosen


def _run(connection, title, status, seconds, added):
    stage = {"done": "finalize", "failed": "diarize_embed"}.get(status, "acquire")
    error = "diarize_embed: pyannote answered 500: the sound is too long for its memory" if status == "failed" else None
    ended = added + timedelta(minutes=70) if status in {"done", "failed"} else None
    run_id = connection.execute(
        insert(RUN)
        .values(
            title=title, source="made", source_kind="upload", status=status, stage=stage, error=error, folder="runs/made",
            duration_seconds=seconds, created_at=added, finished_at=ended, language="en" if status == "done" else None,
        )
        .returning(RUN.c.id)
    ).scalar_one()  # fmt: skip
    connection.execute(
        text("UPDATE run SET folder = :folder WHERE id = :id"), {"folder": f"runs/{run_id}-made", "id": run_id}
    )
    if status == "queued":
        connection.execute(
            insert(WORK_ITEM).values(run_id=run_id, kind="acquire", lane="gpu", queued_at=added, waiting_since=added)
        )
    return run_id


def _executions(connection, run_id, at):
    for kind, lane, seconds in STAGES:
        item = connection.execute(
            insert(WORK_ITEM)
            .values(run_id=run_id, kind=kind, lane=lane, state="done", queued_at=at, waiting_since=at, finished_at=at)
            .returning(WORK_ITEM.c.id)
        ).scalar_one()
        end = at + timedelta(seconds=seconds)
        connection.execute(
            insert(STAGE_EXECUTION).values(
                work_item_id=item, run_id=run_id, kind=kind, attempt=1, claim_token=f"{run_id}-{kind}", worker="worker",
                started_at=at, ended_at=end, outcome="done",
            )
        )  # fmt: skip
        at = end


def spoken():
    """Who says what in the sample, from its known words."""
    pairs = [line.split(": ", 1) for line in (SPEECH / "museum.txt").read_text(encoding="utf-8").splitlines() if line]
    return [(who, words) for who, words in pairs]


@functools.cache
def sound_seconds():
    with av.open(str(SPEECH / "museum.ogg")) as file:
        return float(file.duration / av.time_base)


@functools.cache
def sample():
    """The sample as 16 kHz WAV."""
    whole = io.BytesIO()
    with av.open(str(SPEECH / "museum.ogg")) as source, wave.open(whole, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16_000)
        resampler = av.AudioResampler(format="s16", layout="mono", rate=16_000)
        for frame in source.decode(audio=0):
            for piece in resampler.resample(frame):
                out.writeframes(piece.to_ndarray().tobytes())
    return whole.getvalue()


def transcript(run_id):
    """The sample's words, spread over its length."""
    pairs = spoken()
    names = list(dict.fromkeys(who for who, _ in pairs))
    labels = {name: f"SPEAKER_{place:02}" for place, name in enumerate(names)}
    total, letters = sound_seconds(), sum(len(words) for _, words in pairs)
    lines, at = [], 0.3
    for number, (who, words) in enumerate(pairs, 1):
        length = (total - 0.6) * len(words) / letters
        texts, start = words.split(), at
        step = length / max(sum(len(each) + 1 for each in texts), 1)
        placed = []
        for each in texts:
            placed.append(
                {"text": each, "start": round(start, 2), "end": round(start + step * len(each), 2), "probability": 0.9}
            )
            start += step * (len(each) + 1)
        lines.append(
            SpokenLine(number, round(at, 2), round(at + length, 2), who, labels[who], words, None, None, tuple(placed))
        )
        at += length
    return Transcript(
        title=TITLES[2][0], run_id=run_id, language="en", duration_seconds=total, engine="voxint",
        models={"speech recognition": "whisper-large-v3", "language model": "a model of yours"}, notices=(),
        speakers={label: name for name, label in labels.items()}, lines=tuple(lines),
    )  # fmt: skip


def _voices(connection, run_id):
    seconds = {"Mara": 812.0, "Tom": 640.0, "Ines": 701.0}
    for place, who in enumerate(dict.fromkeys(who for who, _ in spoken())):
        made = insert(SPEAKER).values(name=who, created_at=clock.read(connection)).returning(SPEAKER.c.id)
        speaker = connection.execute(made).scalar_one()
        connection.execute(
            insert(SPEAKER_VOICE).values(
                run_id=run_id, label=f"SPEAKER_{place:02}", speaker_id=speaker, model="m", vector=[1.0],
                seconds=seconds.get(who, 100.0),
            )
        )  # fmt: skip
    unknown = insert(SPEAKER).values(created_at=clock.read(connection)).returning(SPEAKER.c.id)
    connection.execute(
        insert(SPEAKER_VOICE).values(
            run_id=1, label="SPEAKER_00", speaker_id=connection.execute(unknown).scalar_one(), model="m", vector=[1.0],
            seconds=2210,
        )
    )  # fmt: skip


def _sound(connection, run_id, media_root):
    folder = media_root / "runs" / f"{run_id}-made"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "audio.wav").write_bytes(sample())
    _result(connection, run_id, "prepare", {"file": "audio.wav"})


def _more(connection, run_id, now):
    _result(
        connection, run_id, "run_assets",
        {
            "summary": "The three plan the opening of a new room in the museum: thirty small pictures are to hang before"
            " the spring, and the old letters stay in the office until the lock of their case is mended.",
            "chapters": [{"line": 1, "start": 0.3, "text": "The state of the room"}, {"line": 7, "start": 20.0, "text": "The letters"}],
            "actions": [{"line": 6, "start": 16.0, "text": "Tom brings his tools on Monday after lunch"}],
            "model": "a model of yours",
        },
    )  # fmt: skip
    german = {str(number): {"text": words, "kept": None} for number, (_, words) in enumerate(spoken(), 1)}
    _result(connection, run_id, "translation", {"languages": {"de": {"model": "a model of yours", "lines": german}}})
    for kind in ("run_assets", "translation"):
        connection.execute(
            insert(WORK_ITEM).values(
                run_id=run_id, kind=kind, lane="post", state="done", queued_at=now, waiting_since=now, finished_at=now,
                options={"language": "de"} if kind == "translation" else {},
            )
        )  # fmt: skip


def _result(connection, run_id, kind, data):
    connection.execute(
        text(
            "INSERT INTO stage_result (run_id, kind, data, made_at) VALUES (:run, :kind, CAST(:data AS jsonb), voxint_now())"
        ),
        {"run": run_id, "kind": kind, "data": json.dumps(data)},
    )


def many_runs(engine, number):
    """So many recordings more, most of them done."""
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO run (title, source, source_kind, folder, created_at, finished_at, status, stage, duration_seconds)"
                " SELECT 'Recording number ' || n, 's', 'file', 'runs/' || n, voxint_now() - n * interval '1 minute',"
                " voxint_now(), 'done', 'finalize', 600 + n % 3000 FROM generate_series(1, :number) n"
            ),
            {"number": number},
        )
        connection.execute(
            text(
                "INSERT INTO work_item (run_id, kind, lane, state, queued_at, waiting_since, finished_at)"
                " SELECT run.id, kind, 'gpu', 'done', created_at, created_at, finished_at FROM run,"
                " unnest(ARRAY['acquire', 'prepare', 'transcribe', 'diarize_embed']) kind WHERE source = 's'"
            )
        )

"""Makes the sample recordings from the known words beside them: `python examples/speech/make.py [NAME...]`.

Each NAME.txt holds one turn a line, `speaker: words`. A turn is spoken by espeak-ng with that speaker's voice, turns
are half a second or more apart, and NAME.ogg (Opus, one channel) is written, and NAME.rttm: who speaks when. It takes
espeak-ng and PyAV.
"""

from __future__ import annotations

import io
import subprocess
import sys
import wave
from pathlib import Path

import av
import numpy as np

FOLDER = Path(__file__).parent
RATE = 16_000
VOICES = {"Mara": "en-us+f4", "Tom": "en-us+m3", "Ines": "en-us+Alicia"}
PAUSES = (0.6, 0.9, 0.5, 1.2, 0.7)  # seconds, in turn
WORDS_A_MINUTE = 150
BITS_A_SECOND = 48_000
QUIET = 150
"""Samples below this are the silence that espeak-ng puts around a turn."""


def turns(text: str) -> list[tuple[str, str]]:
    """The speaker and the words of each line."""
    found = []
    for line in text.splitlines():
        speaker, colon, words = line.partition(": ")
        if colon:
            found.append((speaker, words))
    return found


def speak(voice: str, words: str) -> np.ndarray:
    """One turn as 16-bit samples at 16 kHz."""
    argv = ["espeak-ng", "-v", voice, "-s", str(WORDS_A_MINUTE), "--stdout", words]
    made = subprocess.run(argv, check=True, capture_output=True).stdout
    with wave.open(io.BytesIO(made)) as file:
        rate = file.getframerate()
    # espeak-ng writes to a pipe and cannot know the length, so the header's number of frames means nothing.
    samples = np.frombuffer(made[44:], np.int16)
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
    frame.sample_rate = rate
    parts = [out.to_ndarray()[0] for piece in (frame, None) for out in resampler.resample(piece)]
    return np.concatenate(parts)


def recording(text: str) -> tuple[np.ndarray, list[tuple[str, float, float]]]:
    """All turns with the pauses between them; and of each turn the speaker, and where their voice begins and ends."""
    parts = [np.zeros(int(0.5 * RATE), np.int16)]
    spoken = []
    for number, (speaker, words) in enumerate(turns(text)):
        at = sum(len(part) for part in parts)
        said = speak(VOICES[speaker], words)
        loud = np.flatnonzero(np.abs(said.astype(np.int32)) >= QUIET)
        spoken.append((speaker, (at + int(loud[0])) / RATE, (at + int(loud[-1])) / RATE))
        parts += [said, np.zeros(int(PAUSES[number % len(PAUSES)] * RATE), np.int16)]
    return np.concatenate(parts), spoken


def rttm(name: str, spoken: list[tuple[str, float, float]]) -> str:
    """Who speaks when, in the form that scorers of diarization read."""
    line = "SPEAKER {} 1 {:.3f} {:.3f} <NA> <NA> {} <NA> <NA>\n"
    return "".join(line.format(name, start, end - start, speaker) for speaker, start, end in spoken)


def write(samples: np.ndarray, path: Path) -> None:
    """The samples as Ogg Opus. Without the bit-exact flag each file would carry another serial number."""
    with av.open(str(path), "w", format="ogg", options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("libopus", rate=RATE, layout="mono")
        stream.bit_rate = BITS_A_SECOND
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = RATE
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)


def main() -> None:
    """Make the named recordings, or all."""
    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.txt")):
        samples, spoken = recording((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))
        write(samples, FOLDER / f"{name}.ogg")
        (FOLDER / f"{name}.rttm").write_text(rttm(name, spoken), encoding="utf-8")
        print(f"{name}.ogg: {len(samples) / RATE:.1f} s, {(FOLDER / f'{name}.ogg').stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()

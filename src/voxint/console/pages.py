"""What every route works with: the parts, the templates with everything escaped, and the ways to answer."""

from __future__ import annotations

from collections import OrderedDict
from datetime import timedelta
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING

from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from sqlalchemy.exc import SQLAlchemyError

from voxint.console.attempts import Attempts
from voxint.console.door import Cookies
from voxint.console.forms import TOKEN, RefusedError, visitor_of
from voxint.console.picture import picture
from voxint.console.uploads import Intake, keep
from voxint.db.trouble import place, words
from voxint.doctor.checks import run_checks
from voxint.gpu_phase.status import look
from voxint.gpu_phase.timeline import stretches
from voxint.gpu_phase.wording.figures import sentence
from voxint.recordings.address import is_url
from voxint.recordings.errors import NotAddedError
from voxint.recordings.titles import title_of
from voxint.work.publish import wake_after_adding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fastapi import Request

    from voxint.console.door import Visitor
    from voxint.console.picture import Picture
    from voxint.console.uploads import Taken
    from voxint.doctor.finding import Finding
    from voxint.gpu_phase.store import Event
    from voxint.gpu_phase.view import PhaseView
    from voxint.recordings.run import Run
    from voxint.wiring import Parts

HERE = Path(__file__).parent
REFRESH_SECONDS = 3
FINDINGS_SECONDS = 5.0
WINDOW = timedelta(hours=24)
LANE_BOUND = 100_000
"""Lanes are counted up to this on pages, which look often."""
_MOST_EVENTS = 5000
_MOST_REMEMBERED = 1000


class Console:
    """What the routes need.

    Args:
        parts: everything else of Voxint.
        port: where the console listens; the cookies carry it.
    """

    def __init__(self, parts: Parts, port: int) -> None:
        self.parts = parts
        self.cookies = Cookies(port)
        self.attempts = Attempts()
        self.intake = Intake(parts.settings.media_root, parts.settings.upload_max_bytes)
        self._once: OrderedDict[str, int] = OrderedDict()
        self._checking = Lock()
        self._found: list[Finding] | None = None
        self._found_at = 0.0
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    # --- answers -----------------------------------------------------------------------------------------------

    def render(self, request: Request | None, name: str, status: int = 200, **values: object) -> HTMLResponse:
        """A page. It is as old as its moment: no browser or proxy keeps it."""
        visitor = visitor_of(request) if request is not None and hasattr(request.state, "visitor") else None
        text = self._templates.get_template(name).render(
            visitor=visitor,
            token_name=TOKEN,
            token=visitor.form_token if visitor else "",
            word=self._word(visitor) if status < 400 else None,
            refresh_seconds=REFRESH_SECONDS,
            **values,
        )
        return HTMLResponse(text, status_code=status, headers={"cache-control": "no-store"})

    def _word(self, visitor: Visitor | None) -> dict[str, object] | None:
        """What the form before this page came to; a page that refreshes itself leaves it for one that is read."""
        if visitor is None or visitor.session is None or visitor.is_refresh:
            return None
        try:
            return self.parts.access.take_word(visitor.session.id)
        except SQLAlchemyError:
            return None  # the page itself says that the database is away

    def then(self, request: Request, to: str, *said: str, level: str = "note") -> RedirectResponse:
        """After a form: another page, which says what came of it."""
        session = visitor_of(request).session
        if session is not None and said:
            self.parts.access.leave_word(session.id, {"level": level, "said": list(said)})
        return RedirectResponse(to, 303, {"cache-control": "no-store"})

    def trouble(
        self, request: Request | None, status: int, heading: str, text: str, back: str | None = None
    ) -> HTMLResponse:
        """A page that could not be made, in words."""
        return self.render(request, "trouble.html", status, page="", heading=heading, text=text, back=back)

    def away(self, error: SQLAlchemyError) -> Response:
        """The page while the database is away."""
        return self.trouble(None, 503, "The database is away", sentence(words(error, place(self.parts.settings))))

    # --- what pages are made of --------------------------------------------------------------------------------

    def view(self) -> PhaseView:
        """The phase now."""
        return look(self.parts.phase_store, self.parts.settings, bound=LANE_BOUND)

    def history(self, view: PhaseView) -> tuple[Sequence[Event], Picture | None]:
        """The changes of the last day, and their picture; nothing with sharing off."""
        if not view.enabled or view.state is None:
            return (), None
        begin = view.now - WINDOW
        events = self.parts.phase_store.events(begin, _MOST_EVENTS)
        return events, picture(stretches(events, view.state, begin, view.now), None)

    def findings(self) -> list[Finding]:
        """Doctor's findings, at most a few seconds old: however often the page is asked for, they are made once."""
        with self._checking:
            if self._found is None or monotonic() - self._found_at > FINDINGS_SECONDS:
                self._found, self._found_at = run_checks(self.parts), monotonic()
            return self._found

    def forget_findings(self) -> None:
        """Something was changed: the next page looks anew."""
        with self._checking:
            self._found = None

    # --- adding recordings -------------------------------------------------------------------------------------

    def add(self, source: str, fields: Mapping[str, str]) -> Run:
        """Queue a recording by its address, or by its path where it lies below a folder that is meant for that.

        Raises:
            RefusedError: it cannot be added.
        """
        if not is_url(source):
            source = str(self._allowed(Path(source)))
        return self._queued(source, source, source, fields)

    def queue_upload(self, taken: Taken, title: str, fields: Mapping[str, str]) -> Run:
        """Queue an upload that is whole on disk. The same form twice is one recording.

        Raises:
            RefusedError: it is no recording; its file is gone.
        """
        once = fields.get("once", "")[:64]
        known = self._once.get(once) if once else None
        run = self.parts.run_store.get(known) if known else None
        if run is not None:
            return run
        path = keep(taken)
        shown = title_of(taken.name.replace("\\", "/").rpartition("/")[2], "the file")
        try:
            given = {**fields, "title": fields.get("title", "").strip() or title or "recording"}
            run = self._queued(path, path.name, shown, given, uploaded=True)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        if once:
            self._once[once] = run.id
            while len(self._once) > _MOST_REMEMBERED:
                self._once.popitem(last=False)
        return run

    def _queued(
        self, source: str | Path, named: str, shown: str, fields: Mapping[str, str], *, uploaded: bool = False
    ) -> Run:
        try:
            run = self.parts.run_store.add(
                source,
                title=fields.get("title", "").strip() or None,
                language=fields.get("language") or None,
                speakers=fields.get("speakers") or None,
                uploaded=uploaded,
            )
        except NotAddedError as error:
            raise RefusedError(422, "This cannot be added", sentence(str(error).replace(named, shown))) from None
        self.wake()
        return run

    def _allowed(self, path: Path) -> Path:
        roots = [root.resolve() for root in self._paths]
        try:
            real = path.resolve() if path.is_absolute() else None
        except (OSError, RuntimeError, ValueError):
            real = None
        if real is None or not any(real.is_relative_to(root) for root in roots):
            raise RefusedError(422, "This cannot be added", f"A path must be a whole one, {self.paths_words()}.")
        return real

    @property
    def _paths(self) -> tuple[Path, ...]:
        return self.parts.settings.console_paths or (self.parts.settings.media_root.absolute() / "inbox",)

    def paths_words(self) -> str:
        """Where files may lie that are added by path."""
        return "below " + " or ".join(str(path) for path in self._paths)

    # --- what routes do ----------------------------------------------------------------------------------------

    def note(self, request: Request, what: str) -> None:
        """Write down what somebody did."""
        session = visitor_of(request).session
        self.parts.record.note(session.by if session else f"somebody ({address_of(request)})", what)

    def wake(self) -> None:
        """Let the workers know of new work, beside the answer: Redis may be away, and the next sweep finds it too."""
        self.aside(lambda: wake_after_adding(self.parts.settings))

    def aside(self, step: Callable[[], object]) -> None:
        """Do something that nobody waits for."""
        Thread(target=step, name="aside", daemon=True).start()


def address_of(request: Request) -> str:
    """Where a request comes from, as far as the trusted proxies say."""
    return request.client.host if request.client else "unknown"

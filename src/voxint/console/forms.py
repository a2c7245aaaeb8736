"""Forms: read, and believed only with the token of the page that they stand on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import Depends, Request

from voxint.storable import storable_text

if TYPE_CHECKING:
    from voxint.access.store import Session
    from voxint.console.door import Visitor

TOKEN = "token"  # noqa: S105 - a field's name
FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")
_MOST_FIELDS = 50


class RefusedError(Exception):
    """What was asked for is not done: a page says why."""

    def __init__(self, status: int, heading: str, text: str, *, back: str = "/") -> None:
        super().__init__(text)
        self.status = status
        self.heading = heading
        self.text = text
        self.back = back


def visitor_of(request: Request) -> Visitor:
    """Who a request comes from."""
    return cast("Visitor", request.state.visitor)


def session_of(request: Request) -> Session:
    """The session of a request that came through the door."""
    session = visitor_of(request).session
    if session is None:  # the door lets none of these in
        raise RefusedError(401, "Sign in first", "This needs a sign-in.", back="/sign-in")
    return session


async def read_form(request: Request) -> Mapping[str, str]:
    """A form's plain fields, once its token is checked.

    Raises:
        RefusedError: it is no form, or one of another page.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in FORM_TYPES:
        raise RefusedError(415, "This is no form", "A form of one of these pages was expected.")
    data = await request.form(max_files=0, max_fields=_MOST_FIELDS, max_part_size=64 * 1024)
    fields = {name: storable_text(value) for name, value in data.items() if isinstance(value, str)}
    check_token(request, fields.get(TOKEN, ""))
    return fields


def check_token(request: Request, given: str) -> None:
    """Believe a form only where its token was made for this visitor.

    Raises:
        RefusedError: it was not.
    """
    if not given or not visitor_of(request).owns(given):
        raise RefusedError(
            403, "This form is too old", "Nothing was changed. Open the page anew, and send the form again from there."
        )


def page_in(fields: Mapping[str, Any], otherwise: str) -> str:
    """Where a form wants to go back to: a page of ours, and nothing else."""
    return local_page(str(fields.get("back", "")), otherwise)


def local_page(wanted: str, otherwise: str) -> str:
    """An address within this console, else another one: what begins with two slashes is another host to a browser."""
    plain = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isprintable()
    return wanted if plain and "\\" not in wanted else otherwise


Form = Annotated[Mapping[str, str], Depends(read_form)]

"""Signing in and out: by the password, or by a link that works once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from fastapi import Query, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.exc import SQLAlchemyError

from voxint.access.passwords import BusyError
from voxint.access.store import LINK_LASTS, NAME_CHARACTERS
from voxint.console.forms import Form, RefusedError, local_page, session_of, visitor_of
from voxint.console.pages import address_of
from voxint.gpu_phase.wording.figures import span

if TYPE_CHECKING:
    from fastapi import FastAPI

    from voxint.console.pages import Console

_FORM_SECONDS = 3600


def register(app: FastAPI, console: Console) -> None:
    """Put the routes on the application."""

    @app.get("/sign-in")
    def sign_in_page(
        request: Request,
        going_to: Annotated[str, Query(alias="next", max_length=2000)] = "/",
        link: Annotated[str, Query(max_length=200)] = "",
    ) -> Response:
        if visitor_of(request).session is not None and not link:
            return RedirectResponse(local_page(going_to, "/"), 303)
        return _page(console, request, going_to, link)

    @app.post("/sign-in")
    def sign_in(request: Request, fields: Form) -> Response:
        address = address_of(request)
        going_to, link = local_page(fields.get("next", "/"), "/"), fields.get("link", "")[:200]
        wait = console.attempts.begin(address)
        if wait > 0:
            text = f"Too many attempts from {address}. Try again in {span(timedelta(seconds=int(wait) + 1))}."
            page = _page(console, request, going_to, link, wrong=text, status=429)
            page.headers["retry-after"] = str(int(wait) + 1)
            return page
        try:
            proof = None if link else console.parts.access.proof(fields.get("password", ""))
            known = console.parts.access.use_link(link) if link else proof is not None
            token = _open(console, request, fields.get("who", ""), proof) if known else None
        except BusyError as error:
            console.attempts.take_back(address)
            return _page(console, request, going_to, link, wrong=f"{error}.", status=503)
        except SQLAlchemyError:
            console.attempts.take_back(address)
            raise
        if token is None:
            console.note(request, "was refused at the sign-in")
            wrong = "This link was used, or is too old." if link else "This is not the password."
            return _page(console, request, going_to, "", wrong=wrong, status=403)
        console.attempts.succeeded(address)
        return _in(console, request, token, going_to)

    @app.post("/sign-out")
    def sign_out(request: Request, _fields: Form) -> Response:
        console.parts.access.close(session_of(request).id)
        console.note(request, "signed out")
        response = RedirectResponse("/sign-in", 303, {"clear-site-data": '"cache"'})
        response.delete_cookie(console.cookies.session, path="/")
        return response


def _open(console: Console, request: Request, who: str, proof: str | None) -> str | None:
    name = " ".join("".join(each for each in who if each.isprintable()).split())[:NAME_CHARACTERS]
    return console.parts.access.open(name, address_of(request), proof)


def _in(console: Console, request: Request, token: str, going_to: str) -> Response:
    old = visitor_of(request).session
    if old is not None:
        console.parts.access.close(old.id)
    session = console.parts.access.session(token)
    if session is None:
        raise RefusedError(503, "This could not be done", "The sign-in could not be kept.", back="/sign-in")
    console.parts.record.note(session.by, "signed in")
    response = RedirectResponse(going_to, 303, {"cache-control": "no-store"})
    console.cookies.give(response, console.cookies.session, token, request)
    response.delete_cookie(console.cookies.passing, path="/")
    return response


def _page(
    console: Console, request: Request, going_to: str, link: str, *, wrong: str = "", status: int = 200
) -> Response:
    response = console.render(
        request,
        "sign_in.html",
        status,
        page="sign-in",
        going_to=local_page(going_to, "/"),
        link=link,
        wrong=wrong,
        has_password=console.parts.access.has_password(),
        link_lasts=span(LINK_LASTS),
    )
    visitor = visitor_of(request)
    if visitor.session is None:
        console.cookies.give(response, console.cookies.passing, visitor.secret, request, max_age=_FORM_SECONDS)
    return response

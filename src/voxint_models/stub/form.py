"""Reads a multipart form with the standard library alone, well enough for our own clients and curl."""

from __future__ import annotations

import re

_NAME = re.compile(rb'name="((?:[^"\\]|\\.)*)"')


class FormError(ValueError):
    """The body is no multipart form."""


def parse(content_type: str, body: bytes) -> dict[str, list[bytes]]:
    """The form's values by name, in their order; a file's bytes stand under its field's name."""
    match = re.search(r'boundary="?([^";]+)"?', content_type)
    if not content_type.startswith("multipart/form-data") or match is None:
        raise FormError(f"expected multipart/form-data, got {content_type or 'no content type'}")
    values: dict[str, list[bytes]] = {}
    for part in (b"\r\n" + body).split(b"\r\n--" + match.group(1).encode())[1:]:
        head, found, value = part.partition(b"\r\n\r\n")
        name = _NAME.search(head)
        if found and name:
            values.setdefault(name.group(1).decode("utf-8", "replace"), []).append(value)
    return values


def first(form: dict[str, list[bytes]], name: str) -> str | None:
    """The first value of `name` as text, or None where the form has none."""
    values = form.get(name)
    return values[0].decode("utf-8", "replace") if values else None

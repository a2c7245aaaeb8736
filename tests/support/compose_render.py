"""Compose's files merged and interpolated, as `docker compose config` does, as far as ours need it.

So that the rules about the files are checked where there is no Docker; tests/docker compares this with compose's own.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
REPLACED = {"command", "entrypoint", "test"}
_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:[-?]|\?)([^}]*))?\})")


class Reset:
    """`!reset`: what stood here before is taken away."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    pass


class _Override(list):
    """`!override`: a sequence that takes the place of the earlier one."""


_Loader.add_constructor("!reset", lambda _loader, _node: Reset())
_Loader.add_constructor("!override", lambda loader, node: _Override(loader.construct_sequence(node, deep=True)))


class MissingVariableError(Exception):
    """A variable that must be set is not."""


def load(name):
    """One file, as it is written."""
    return parse((ROOT / name).read_text(encoding="utf-8"))


@functools.cache
def parse(text):
    """A compose file's text, with compose's own tags."""
    return yaml.load(text, _Loader)


def render(names, environ=None):
    """The services, volumes and networks of these files, in this order."""
    merged = {}
    for name in names:
        document = {key: value for key, value in load(name).items() if not key.startswith("x-")}
        for used in _VARIABLE.finditer((ROOT / name).read_text(encoding="utf-8")):
            _value(used, environ or {})  # a variable that must be set must be, wherever it stands
        merged = _merge(merged, _interpolate(document, environ or {}))
    merged["volumes"] = {name: value or {} for name, value in merged.get("volumes", {}).items()}
    for service in merged["services"].values():
        _normal(service)
    return merged


def _interpolate(value, environ):
    match value:
        case dict():
            return {key: _interpolate(item, environ) for key, item in value.items()}
        case _Override():
            return _Override(_interpolate(item, environ) for item in value)
        case list():
            return [_interpolate(item, environ) for item in value]
        case str():
            return _VARIABLE.sub(lambda found: _value(found, environ), value)
    return value


def _value(found, environ):
    dollar, name, operator, rest = found.groups()
    if dollar:
        return "$"
    value = environ.get(name, "")
    if (operator == ":?" and not value) or (operator == "?" and name not in environ):
        raise MissingVariableError(f"{name}: {rest}")
    return value or (rest or "" if operator == ":-" else "")


def _merge(before, after, key=None):
    if isinstance(after, Reset):
        return after
    if isinstance(before, dict) and isinstance(after, dict):
        merged = dict(before)
        for name, value in after.items():
            merged[name] = _merge(before.get(name), value, name)
            if isinstance(merged[name], Reset):
                del merged[name]
        return merged
    if isinstance(after, _Override):
        return list(after)
    if isinstance(before, list) and isinstance(after, list) and key not in REPLACED:
        taken = {_target(item) for item in after}
        return [item for item in before if _target(item) not in taken] + after
    return after


def _target(item):
    """What an item of a sequence is told apart by: a mount by where it goes, anything else by itself."""
    if isinstance(item, dict):
        return str(item.get("target", item))
    source, found, rest = str(item).partition(":/")
    return "/" + rest.partition(":")[0] if found and source else str(item)


def _normal(service):
    """Short forms written out, where tests ask for them."""
    service["volumes"] = [_mount(item) for item in service.get("volumes", [])]


def _mount(item):
    if isinstance(item, dict):
        return {
            "type": item["type"],
            "source": item["source"],
            "target": item["target"],
            "read_only": item.get("read_only", False),
        }
    source, target, *mode = item.split(":")
    kind = "bind" if source.startswith((".", "/")) else "volume"
    return {"type": kind, "source": source, "target": target, "read_only": mode == ["ro"]}

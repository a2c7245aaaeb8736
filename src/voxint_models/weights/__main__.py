"""`python -m voxint_models.weights list|fetch`: what weights there are, and getting them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from voxint_models.weights import store
from voxint_models.weights.catalogue import CATALOGUE, Weights
from voxint_models.weights.fetch import DEFAULT_HUB, FetchError, Source, fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_STEP = 64 << 20


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run one command; 0 done, 1 could not. Exits 2 on a wrong one."""
    services = [weights.service for weights in CATALOGUE]
    parser = argparse.ArgumentParser(prog="voxint models", description="The weights of the model services for GPUs.")
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="what is there, with sizes and licences")
    listing.add_argument("--json", action="store_true", help="as JSON")
    fetching = commands.add_parser("fetch", help="get what is not there; HF_TOKEN where the publisher wants it")
    fetching.add_argument("--service", choices=services, action="append", help="only this one's; may be given again")
    found = parser.parse_args(argv)
    root = store.root(environ)
    if found.command == "list":
        return _list(root, as_json=found.json)
    source = Source((environ.get("HF_ENDPOINT") or DEFAULT_HUB).rstrip("/"), environ.get("HF_TOKEN") or None)
    wanted = [weights for weights in CATALOGUE if weights.service in (found.service or services)]
    # Each is tried: that one wants an account must not keep the others away.
    return max(_fetch(weights, root, source) for weights in wanted)


def _list(root: Path, *, as_json: bool) -> int:
    rows = [_row(weights, root) for weights in CATALOGUE]
    if as_json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return 0
    sys.stdout.write(f"under {root}\n")
    for row in rows:
        there = "there" if row["there"] else "not there"
        account = ", wants an account" if row["gated"] else ""
        sys.stdout.write(
            f"{row['service']:9} {there:10} {row['bytes'] / 1e6:8.1f} MB  {row['licence']}{account}  {row['name']}\n",
        )
    return 0


def _row(weights: Weights, root: Path) -> dict[str, Any]:
    return {
        "service": weights.service,
        "name": weights.name,
        "revision": weights.revision,
        "licence": weights.licence,
        "page": weights.page,
        "gated": weights.gated,
        "bytes": weights.size,
        "there": not store.missing(weights, root),
        "folder": str(root / weights.folder),
    }


def _fetch(weights: Weights, root: Path, source: Source) -> int:
    sys.stderr.write(f"{weights.service}: {weights.name}, {weights.size / 1e6:.1f} MB, licence {weights.licence}\n")
    try:
        folder = fetch(weights, root, source, _teller(weights))
    except FetchError as error:
        sys.stderr.write(f"{weights.service}: {error}\n")
        return 1
    sys.stdout.write(f"{weights.service}: {folder}\n")
    return 0


def _teller(weights: Weights) -> Callable[[int], None]:
    """Says now and then how much has come."""
    come, said = 0, 0

    def tell(count: int) -> None:
        nonlocal come, said
        come += count
        if come - said >= _STEP:
            said = come
            sys.stderr.write(f"{weights.service}: {come / 1e6:.0f} of {weights.size / 1e6:.0f} MB\n")

    return tell


if __name__ == "__main__":
    sys.exit(main())

"""The processes of each service, where it is this host's own process control that runs them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import psutil

from voxint.services import process_record
from voxint.services.process_table import living

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from voxint.settings import Settings


def pids_of(settings: Settings) -> Callable[[], Mapping[str, Collection[int]]] | None:
    """Gives the pids of every service; None where no process control runs them.

    Containers are left out: whoever has the engine's socket sits in a container too, where the numbers are others.
    """
    if settings.service_control != "process":
        return None
    return partial(_pids, settings)


def _pids(settings: Settings) -> Mapping[str, Collection[int]]:
    """The living processes of every service.

    Raises:
        OSError: the process table cannot be read.
    """
    folder = settings.service_state_dir
    records = {name: process_record.read(folder, name) for name in settings.services}
    try:
        found = living(folder, records)
    except psutil.Error as error:
        raise OSError(str(error)) from error
    return {name: frozenset(process.pid for process in processes) for name, processes in found.items()}

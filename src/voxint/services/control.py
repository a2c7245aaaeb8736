"""Which control the settings ask for: SERVICE_CONTROL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxint.gpu_phase.ports import Services
    from voxint.settings import Settings


def make_services(settings: Settings, environ: Mapping[str, str]) -> Services:
    """The control of the model services that a tick works with.

    Args:
        settings: names the control and the services.
        environ: the environment that processes started by us get, without Voxint's secrets.

    Raises:
        SettingsError: SERVICE_CONTROL=none, which leaves nobody to start and stop the services.
    """
    match settings.service_control:
        case "process":
            from voxint.services.process import ProcessControl  # noqa: PLC0415 - only the one that is used is loaded

            return ProcessControl(settings, environ)
        case "docker":
            from voxint.services.docker import DockerControl  # noqa: PLC0415

            return DockerControl(settings, environ)
        case "none":
            raise SettingsError(
                ["SERVICE_CONTROL: none starts and stops nothing: the gpu-phase worker needs docker or process"]
            )

"""Every setting: its name, default, rule and sentence. docs/reference/settings.md and .env.example are made from this.

Settings come from the environment alone; a blank value means unset. A secret may come from a file: <NAME>_FILE.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from voxint.addresses import DatabaseUrl, HttpUrl, RedisUrl, SecretUrl, http_url
from voxint.gpu_phase.policy import PREPARE_AHEAD, Policy
from voxint.gpu_phase.windows import Windows

if TYPE_CHECKING:
    from collections.abc import Mapping

TRUE = frozenset({"true", "t", "1", "yes", "y", "on"})
"""The words, in small letters, that turn a setting on."""

SECRETS = (
    "GPU_LEASE_TOKEN",
    "LLM_API_KEY",
    "CONSOLE_PASSWORD",
    "API_TOKEN",
    "DATABASE_URL",
    "REDIS_URL",
    "ALERT_WEBHOOK_URL",
    "RUN_WEBHOOK_URL",
)
"""Settings that may come from <NAME>_FILE, and are never shown."""

LLM_FEATURES = ("ENHANCE", "ASSETS", "TRANSLATE", "RESEARCH")
"""Uses of the language model that may be sent to an endpoint of their own: LLM_<FEATURE>_BASE_URL."""


class SettingsError(ValueError):
    """Settings that cannot be used: one clear line each, which name the setting and never a secret's value."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _token(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.isascii() or not text.isprintable():
        msg = "must be printable ASCII without line breaks: it is sent in an HTTP header"
        raise ValueError(msg)
    return value


def _hours_of_day(value: str) -> str:
    Windows.parse(value)
    return value


PLACEMENT_DEVICES = ("cuda", "rocm", "metal", "gpu", "cpu", "any")
"""What GPU_PLACEMENT_EXPECT may name; `gpu` is a GPU of any make, and `any` expects nothing."""


def _placement_expect(value: str) -> str:
    _parse_placement(value)
    return value


def _parse_placement(value: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for part in (part.strip() for part in value.split(",")):
        if not part:
            continue
        name, equals, listed = (piece.strip() for piece in part.partition("="))
        devices = tuple(device.strip().lower() for device in listed.split("|"))
        if not equals or not name:
            raise ValueError(f"{part!r} is not of the form service=device|device")
        if name in found:
            raise ValueError(f"names {name} twice")
        unknown = [device for device in devices if device not in PLACEMENT_DEVICES]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no device (one of {', '.join(PLACEMENT_DEVICES)})")
        found[name] = devices
    return found


class Level(Enum):
    """Whether most people look at a setting, or hardly anybody."""

    BASIC = "basic"
    """It says what is there, or what most people choose for themselves."""
    ADVANCED = "advanced"
    """The default is right almost everywhere."""


Kind = TypeVar("Kind")
Basic = Annotated[Kind, Level.BASIC]
Advanced = Annotated[Kind, Level.ADVANCED]

HoursOfDay = Annotated[str, AfterValidator(_hours_of_day)]
PlacementExpect = Annotated[str, AfterValidator(_placement_expect)]


WARM_UPS = ("none", "speech", "transcription")
"""The small requests that a service may need before it counts as healthy: <NAME>_WARM_UP."""

FEWEST_TOKEN_CHARACTERS = 16
"""Of API_TOKEN: nobody may guess it."""

_SPEACHES = "speaches"
"""speaches has a health path of its own, and answers there before a model is loaded."""


def _run_language(value: str) -> str:
    if not re.fullmatch(r"auto|[a-z]{2,3}(-[a-z0-9]{2,8})?", value):
        raise ValueError("must be a code such as en, de or pt-br, or auto")
    return value


def _run_speakers(value: str) -> str:
    found = re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", value)
    if value and (found is None or not 1 <= int(found[1]) <= int(found[2] or found[1]) <= 50):
        raise ValueError("must be a number like 2 or a range like 2-4, between 1 and 50")
    return value


RunLanguage = Annotated[str, AfterValidator(_run_language)]
RunSpeakers = Annotated[str, AfterValidator(_run_speakers)]
HeaderSecret = Annotated[SecretStr, AfterValidator(_token)]
LONGEST_SECONDS = 3_155_760_000
"""A hundred years. A moment that is further away than a date can say would stop the ticks that count to it."""
LONGEST_DAYS = 36_525
Seconds = Annotated[float, Field(ge=0, le=LONGEST_SECONDS, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Where one model service answers, and how a process control starts it."""

    name: str
    url: str
    health_path: str
    command: tuple[str, ...]
    warm_up: str = "none"
    """The small request that loads its model: `none` where "healthy" already means loaded."""
    model: str = "default"
    """Its model's name in requests."""

    @property
    def health_url(self) -> str:
        """The full address of its health answer."""
        return self.url.rstrip("/") + self.health_path


@dataclass(frozen=True, slots=True)
class LlmEndpoint:
    """One language-model endpoint: the features that use it, and its OpenAI-compatible base address."""

    name: str
    base_url: str


class Settings(BaseModel):
    """All settings, checked. Durations are in seconds here and timedelta everywhere else."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    database_url: Basic[DatabaseUrl] = Field(
        SecretStr("postgresql://voxint@127.0.0.1:5432/voxint"), description="PostgreSQL, where everything is kept."
    )
    redis_url: Basic[RedisUrl] = Field(
        SecretStr("redis://127.0.0.1:6379/0"), description="Redis, which only wakes workers up; it may be lost."
    )
    media_root: Basic[Path] = Field(Path("media"), description="The folder of recordings and transcripts.")
    compute_tier: Basic[Literal["cpu", "gpu", "rocm", "metal", "simulated"]] = Field(
        "cpu", description="What the model services run on. `simulated` is set by standalone and tests only."
    )
    compose_project_name: Advanced[str] = Field("voxint", description="The compose project whose containers are ours.")

    gpu_phase_enabled: Basic[bool] = Field(False, description="Turns GPU sharing on. Needs the three lease addresses.")  # noqa: FBT003
    gpu_lease_acquire_url: Basic[HttpUrl | None] = Field(None, description="The broker's acquire address.")
    gpu_lease_release_url: Basic[HttpUrl | None] = Field(None, description="The broker's release address.")
    gpu_lease_status_url: Basic[HttpUrl | None] = Field(None, description="The broker's status address.")
    gpu_lease_token: Basic[HeaderSecret | None] = Field(
        None, description="Bearer token for the broker, if it wants one."
    )
    gpu_phase_tick_seconds: Advanced[Annotated[float, Field(ge=5, le=LONGEST_SECONDS, allow_inf_nan=False)]] = Field(
        30, description="How often the phase task runs. At least 5. The lease lasts ten of them, at least 600 s."
    )
    gpu_phase_min_dwell_seconds: Basic[Seconds] = Field(
        600, description="Shortest stay in llm before a switch, and in audio before an empty queue ends it."
    )
    gpu_phase_max_audio_seconds: Basic[Seconds] = Field(
        7200, description="Longest audio phase; afterwards no recording begins. At least the min dwell."
    )
    gpu_phase_follow_up_seconds: Advanced[Seconds] = Field(
        1, description="How soon a tick is followed by another while the GPU changes hands. 0: only the periodic tick."
    )
    gpu_phase_acquire_limit_seconds: Advanced[Seconds] = Field(
        600, description="Longest wait for the broker to free the GPU."
    )
    gpu_phase_start_limit_seconds: Advanced[Seconds] = Field(
        600, description="Longest wait for the model services to come up."
    )
    gpu_phase_stop_limit_seconds: Advanced[Seconds] = Field(
        120, description="Longest wait for the model services to stop; at least their own grace + 30 s."
    )
    gpu_phase_release_limit_seconds: Advanced[Seconds] = Field(
        900, description="Longest wait for the broker to bring the language model back."
    )
    gpu_phase_services: Advanced[tuple[str, ...]] = Field(
        ("whisper", "pyannote", "titanet"), description="The model services that share the GPU, comma separated."
    )
    gpu_phase_prepare_ahead: Basic[bool] = Field(
        False,  # noqa: FBT003
        description="Take media in and decode it while the GPU lane is closed. Worth turning on: none of it needs the GPU.",
    )
    gpu_phase_windows: Basic[HoursOfDay] = Field(
        "",
        description="Local hours (TZ) in which audio may have the GPU by itself, as 22:00-07:00, several separated by "
        "commas. Empty: always. `audio-now` overrides them.",
    )
    gpu_placement_action: Basic[Literal["off", "warn", "restart", "abort"]] = Field(
        "warn",
        description="What a model service on the wrong device leads to: nothing is looked at, a warning, a restart of "
        "that service and then a warning, or a restart and then no audio phase.",
    )
    gpu_placement_expect: Advanced[PlacementExpect] = Field(
        "",
        description="The devices that services may run on, as whisper=cuda,titanet=cuda|cpu; `any` expects nothing. "
        "Empty: by COMPUTE_TIER.",
    )
    gpu_placement_max_restarts: Advanced[Annotated[int, Field(ge=0)]] = Field(
        1, description="How many times one start of the model services may restart a service on the wrong device."
    )
    service_control: Advanced[Literal["docker", "process", "none"]] = Field(
        "docker", description="How the gpu-phase worker starts and stops the model services."
    )
    service_state_dir: Advanced[Path] = Field(
        Path("run"), description="Where process control remembers what it started (SERVICE_CONTROL=process)."
    )

    gpu_turn_file: Advanced[Path | None] = Field(
        None, description="The file by which the gpu-phase worker lets model containers start. Set by the overlay."
    )

    work_heartbeat_seconds: Advanced[Annotated[float, Field(gt=0, le=LONGEST_SECONDS, allow_inf_nan=False)]] = Field(
        10, description="How often running work says that it lives."
    )
    work_heartbeat_limit_seconds: Advanced[Annotated[float, Field(gt=0, le=LONGEST_SECONDS, allow_inf_nan=False)]] = (
        Field(60, description="After how long without a heartbeat running work is given back.")
    )
    work_attempts: Advanced[Annotated[int, Field(ge=1)]] = Field(
        3, description="Attempts of a stage before its run fails."
    )
    visibility_timeout_seconds: Advanced[Annotated[float, Field(gt=0, le=LONGEST_SECONDS, allow_inf_nan=False)]] = (
        Field(3600, description="Redis redelivers a message after this. It never decides anything: the claim does.")
    )

    llm_base_url: Basic[HttpUrl | None] = Field(
        None, description="The language model's OpenAI-compatible base address."
    )
    llm_model: Basic[str] = Field("default", description="The model's name in requests.")
    llm_api_key: Basic[HeaderSecret | None] = Field(None, description="Bearer token for the language model.")
    llm_enabled: Basic[bool] = Field(True, description="Whether language-model work is done at all.")  # noqa: FBT003
    llm_timeout_seconds: Advanced[Annotated[float, Field(gt=0, le=LONGEST_SECONDS, allow_inf_nan=False)]] = Field(
        600, description="Longest wait for one answer of the language model."
    )
    llm_batch_lines: Advanced[Annotated[int, Field(ge=1, le=200)]] = Field(
        40, description="Lines of a transcript that the language model mends in one request; fewer for a small model."
    )
    llm_batch_tokens: Advanced[Annotated[int, Field(ge=100, le=100_000)]] = Field(
        1000,
        description="Tokens of a transcript in one request to the language model, by an estimate. Its window must "
        "hold about four times as many.",
    )
    llm_notice: Advanced[str] = Field(
        "", description="A sentence about the model that stands in every transcript's header."
    )
    llm_feature_urls: dict[str, HttpUrl] = Field(default_factory=dict, description="LLM_<FEATURE>_BASE_URL.")

    url_allow_private: Advanced[bool] = Field(
        False,  # noqa: FBT003
        description="Whether recordings may be fetched from private addresses.",
    )
    url_max_bytes: Advanced[Annotated[int, Field(ge=1)]] = Field(
        8 << 30, description="The largest recording that is fetched from an address, in bytes."
    )
    run_language: Basic[RunLanguage] = Field(
        "auto", description="The language of recordings that are added without one: a code such as en, or auto."
    )
    run_speakers: Basic[RunSpeakers] = Field(
        "",
        description="How many speak in recordings that are added without a number: 2, or 2-4. Empty: the model tells.",
    )
    inbox_enabled: Basic[bool] = Field(
        False,  # noqa: FBT003
        description="Whether files put into MEDIA_ROOT/inbox are added by themselves.",
    )
    keep_source: Basic[bool] = Field(
        True,  # noqa: FBT003
        description="Whether a recording's own file is kept once its transcript is done.",
    )
    keep_runs_days: Basic[Annotated[float, Field(ge=0, le=LONGEST_DAYS, allow_inf_nan=False)]] = Field(
        0, description="After how many days a finished recording is deleted with its files. 0: never."
    )
    keep_events_days: Advanced[Annotated[float, Field(ge=0, le=LONGEST_DAYS, allow_inf_nan=False)]] = Field(
        365, description="After how many days a change of phase leaves the history; the sums stay. 0: never."
    )
    whisper_model: Advanced[str] = Field("default", description="The speech recogniser's name in requests.")
    service_timeout_seconds: Advanced[Annotated[float, Field(gt=0, le=LONGEST_SECONDS, allow_inf_nan=False)]] = Field(
        7200, description="Longest wait for one answer of a model service."
    )
    console_bind: Basic[str] = Field("127.0.0.1:8080", description="Where the console listens.")
    console_password: Basic[SecretStr | None] = Field(
        None,
        description="The console's first password, at least 8 characters. Another value later takes the place of the "
        "present password at the next start.",
    )
    console_allowed_hosts: Basic[tuple[str, ...]] = Field(
        ("127.0.0.1", "localhost"), description="Host names by which the console may be reached, comma separated."
    )
    console_session_seconds: Advanced[Annotated[float, Field(ge=60, le=LONGEST_SECONDS, allow_inf_nan=False)]] = Field(
        43_200, description="After how long without use a sign-in at the console ends. 14 days at the latest, always."
    )
    console_paths: Advanced[tuple[Path, ...]] = Field(
        (),
        description="Folders below which recordings may be added by path in the console and over the API, comma "
        "separated. Empty: MEDIA_ROOT/inbox alone.",
    )
    upload_max_bytes: Advanced[Annotated[int, Field(ge=1)]] = Field(
        8 << 30, description="The largest recording that the console and the API take, in bytes."
    )
    trusted_proxies: Advanced[tuple[str, ...]] = Field(
        (), description="Proxies whose forwarded addresses are believed."
    )
    api_token: Basic[HeaderSecret | None] = Field(
        None, description="Bearer token of the HTTP API, at least 16 characters. Without one there is no API."
    )
    run_webhook_url: Basic[SecretUrl | None] = Field(
        None, description="Where it is posted as JSON that a recording is done, or has failed."
    )
    alert_webhook_url: Basic[SecretUrl | None] = Field(
        None, description="Where alerts are posted as JSON: the GPU could not be handed back, the phase task stopped."
    )
    log_json: Advanced[bool] = Field(False, description="Log lines as JSON.")  # noqa: FBT003
    services: dict[str, ServiceSettings] = Field(default_factory=dict, description="<NAME>_URL and friends.")

    @model_validator(mode="after")
    def _together(self) -> Self:
        problems = [*self._sharing_problems(), *self._placement_problems(), *self._console_problems()]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _sharing_problems(self) -> list[str]:
        if not self.gpu_phase_enabled:
            return []
        problems = [
            f"{name}: is needed when GPU_PHASE_ENABLED=true"
            for name in ("GPU_LEASE_ACQUIRE_URL", "GPU_LEASE_RELEASE_URL", "GPU_LEASE_STATUS_URL")
            if getattr(self, name.lower()) is None
        ]
        if self.gpu_phase_max_audio_seconds < self.gpu_phase_min_dwell_seconds:
            problems.append(
                "GPU_PHASE_MAX_AUDIO_SECONDS: must be at least GPU_PHASE_MIN_DWELL_SECONDS "
                f"({self.gpu_phase_min_dwell_seconds:g})"
            )
        short = self.policy.windows.shortest
        if short is not None and short < timedelta(seconds=self.gpu_phase_min_dwell_seconds):
            problems.append(
                "GPU_PHASE_WINDOWS: each stretch must be at least as long as GPU_PHASE_MIN_DWELL_SECONDS "
                f"({self.gpu_phase_min_dwell_seconds:g}), or no switch can begin in it"
            )
        if self.compute_tier in {"cpu", "metal"}:
            problems.append(
                f"GPU_PHASE_ENABLED: GPU sharing is not available on COMPUTE_TIER={self.compute_tier}: use gpu or rocm"
            )
        return problems

    def _placement_problems(self) -> list[str]:
        return [
            f"GPU_PLACEMENT_EXPECT: {name} is not one of GPU_PHASE_SERVICES ({', '.join(self.gpu_phase_services)})"
            for name in self.placement_expected
            if name not in self.gpu_phase_services
        ]

    def _console_problems(self) -> list[str]:
        token = self.api_token
        short = token is not None and len(token.get_secret_value()) < FEWEST_TOKEN_CHARACTERS
        return [f"API_TOKEN: must have at least {FEWEST_TOKEN_CHARACTERS} characters"] if short else []

    @property
    def placement_expected(self) -> dict[str, tuple[str, ...]]:
        """GPU_PLACEMENT_EXPECT, by service."""
        return _parse_placement(self.gpu_placement_expect)

    @property
    def policy(self) -> Policy:
        """The operator's numbers as the phase machine takes them."""
        return Policy(
            enabled=self.gpu_phase_enabled,
            tick=timedelta(seconds=self.gpu_phase_tick_seconds),
            min_dwell=timedelta(seconds=self.gpu_phase_min_dwell_seconds),
            max_audio=timedelta(seconds=self.gpu_phase_max_audio_seconds),
            acquire_limit=timedelta(seconds=self.gpu_phase_acquire_limit_seconds),
            start_limit=timedelta(seconds=self.gpu_phase_start_limit_seconds),
            stop_limit=timedelta(seconds=self.gpu_phase_stop_limit_seconds),
            release_limit=timedelta(seconds=self.gpu_phase_release_limit_seconds),
            windows=Windows.parse(self.gpu_phase_windows),
            ahead=PREPARE_AHEAD if self.gpu_phase_enabled and self.gpu_phase_prepare_ahead else frozenset(),
        )

    @property
    def llm_endpoints(self) -> tuple[LlmEndpoint, ...]:
        """Every configured endpoint once, also one that no enabled feature uses; none where the work is off."""
        if not self.llm_enabled:
            return ()
        by_url: dict[str, list[str]] = {}
        if self.llm_base_url:
            by_url.setdefault(self.llm_base_url, []).append("llm")
        for feature, url in self.llm_feature_urls.items():
            by_url.setdefault(url, []).append(f"llm {feature.lower()}")
        return tuple(LlmEndpoint(", ".join(names), url) for url, names in by_url.items())


_LISTS = {"GPU_PHASE_SERVICES", "CONSOLE_ALLOWED_HOSTS", "CONSOLE_PATHS", "TRUSTED_PROXIES"}
_DERIVED = {"SERVICES", "LLM_FEATURE_URLS"}
_SERVICE_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
NAMES = tuple(name.upper() for name in Settings.model_fields if name.upper() not in _DERIVED)
"""Every plain setting's name, in the order of the generated table."""


def level_of(name: str) -> Level:
    """Whether a plain setting is basic or advanced.

    Raises:
        ValueError: it is marked as neither, or as both.
    """
    (level,) = (mark for mark in Settings.model_fields[name.lower()].metadata if isinstance(mark, Level))
    return level


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read and check the settings.

    Args:
        environ: the environment to read; the process's own by default.

    Raises:
        SettingsError: one line for each setting that cannot be used.
    """
    environ = os.environ if environ is None else environ
    problems: list[str] = []
    values: dict[str, Any] = {}
    for name in NAMES:
        text = _read(name, environ, problems)
        value = [part.strip() for part in text.split(",") if part.strip()] if text and name in _LISTS else text
        if value:  # a list of commas alone names as little as a blank does
            values[name.lower()] = value
    values["llm_feature_urls"] = {
        feature: url
        for feature in LLM_FEATURES
        if (url := _read(f"LLM_{feature}_BASE_URL", environ, problems)) is not None
    }
    values["services"] = _services(values, environ, problems)
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        problems.extend(_lines(error))
    if problems or settings is None:
        raise SettingsError(problems)
    return settings


def _services(values: dict[str, Any], environ: Mapping[str, str], problems: list[str]) -> dict[str, ServiceSettings]:
    names = values.get("gpu_phase_services") or list(Settings.model_fields["gpu_phase_services"].default)
    found: dict[str, ServiceSettings] = {}
    for name in names:
        if not _SERVICE_NAME.fullmatch(name):
            problems.append(f"GPU_PHASE_SERVICES: {name!r} is no service name (small letters, digits and dashes)")
            continue
        prefix = name.upper().replace("-", "_")
        url = _read(f"{prefix}_URL", environ, problems) or f"http://{name}:8000"
        path = _read(f"{prefix}_HEALTH_PATH", environ, problems) or ("/health" if name == _SPEACHES else "/healthz")
        command = _read(f"{prefix}_COMMAND", environ, problems) or ""
        warm_up = _read(f"{prefix}_WARM_UP", environ, problems) or ("speech" if name == _SPEACHES else "none")
        model = _read(f"{prefix}_MODEL", environ, problems) or "default"
        try:
            http_url(url)
        except ValueError as error:
            problems.append(f"{prefix}_URL: {error}")
        if not path.startswith("/"):
            problems.append(f"{prefix}_HEALTH_PATH: must begin with a slash")
        if warm_up not in WARM_UPS:
            problems.append(f"{prefix}_WARM_UP: must be one of {', '.join(WARM_UPS)}")
        try:
            argv = tuple(shlex.split(command))
        except ValueError as error:
            problems.append(f"{prefix}_COMMAND: {error}")
            argv = ()
        found[name] = ServiceSettings(name, url, path, argv, warm_up, model)
    return found


def _read(name: str, environ: Mapping[str, str], problems: list[str]) -> str | None:
    text = environ.get(name, "")
    path = environ.get(f"{name}_FILE", "") if name in SECRETS else ""
    if path.strip():
        if text.strip():
            problems.append(f"{name}: is set twice, also by {name}_FILE: keep one of them")
            return None
        try:
            text = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            problems.append(f"{name}_FILE: cannot read {path}: {why}")
            return None
    if not text.strip():
        return None
    quoted = not name.endswith("_COMMAND") and (text[0] in "'\"" or text[-1] in "'\"")
    if quoted or text != text.strip():
        problems.append(f"{name}: has quotes or spaces around its value: take them away")
        return None
    return text


def _lines(error: ValidationError) -> list[str]:
    lines: list[str] = []
    for item in error.errors(include_input=False, include_url=False, include_context=False):
        message = item["msg"].removeprefix("Value error, ")
        if not item["loc"]:
            lines.extend(message.splitlines())
            continue
        where = str(item["loc"][0]).upper()
        if where == "LLM_FEATURE_URLS":
            where = f"LLM_{item['loc'][1]}_BASE_URL"
        lines.append(f"{where}: {message[0].lower()}{message[1:]}")
    return lines

"""The bodies that go over the wire: what a call must hold, and what each answer holds, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

LeaseId = Annotated[str, Field(min_length=1, max_length=1024)]


class AcquireBody(BaseModel):
    """What an acquire asks for. Further fields are ignored."""

    model_config = ConfigDict(strict=True)

    holder: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
    ttl_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    lease_id: LeaseId | None = None


class ReleaseBody(BaseModel):
    """Which lease is given back."""

    model_config = ConfigDict(strict=True)

    lease_id: LeaseId


class Granted(BaseModel):
    """A lease. `fence` rises with each new one."""

    lease_id: LeaseId
    expires_at: str | None
    fence: int


class Pending(BaseModel):
    """The broker works on it: ask again."""

    state: Literal["pending"]
    phase: str
    elapsed_seconds: float | None = None
    detail: str | None = None


class Released(BaseModel):
    """The lease is given back, and the services run."""

    state: Literal["released"]


class Problem(BaseModel):
    """Why not: words for people, and a code that stays the same."""

    error: str
    code: str


class HeldByAnother(Problem):
    """Somebody else has the GPU."""

    holder: str
    retry_after_seconds: int


class ServiceStatus(BaseModel):
    """A service at the last look."""

    condition: Literal["running", "asleep", "stopped", "unknown"] | None
    detail: str | None


class Status(BaseModel):
    """Who holds the GPU, and what is being done. The first four fields are the contract's."""

    state: Literal["free", "held"]
    holder: str | None
    lease_id: str | None
    expires_at: str | None
    phase: Literal["free", "acquiring", "held", "releasing", "expired", "error"]
    since: str
    elapsed_seconds: float
    fence: int
    reason: str | None
    step: str | None
    detail: str | None
    services: dict[str, ServiceStatus]
    free_mib: int | None
    foreign: list[str]


class Health(BaseModel):
    """Whether the broker lives, or can do its work."""

    status: Literal["ok", "error"]


Responses = dict[int | str, dict[str, Any]]

_PROBLEMS: Responses = {
    401: {"model": Problem, "description": "The bearer token is missing or wrong"},
    421: {"model": Problem, "description": "Another host's name"},
}
_BODY_PROBLEMS: Responses = {
    400: {"model": Problem, "description": "The call broke off, or is no JSON"},
    413: {"model": Problem, "description": "The body is too large"},
    422: {"model": Problem, "description": "A field is missing or wrong"},
}
ACQUIRE: Responses = {
    **_PROBLEMS,
    **_BODY_PROBLEMS,
    200: {"model": Granted, "description": "Granted, or renewed"},
    202: {"model": Pending, "description": "Not yet"},
    404: {"model": Problem, "description": "On a renewal: there is no such lease"},
    409: {"model": HeldByAnother, "description": "Somebody else has it"},
    500: {"model": Problem, "description": "It could not be done"},
}
RELEASE: Responses = {
    **_PROBLEMS,
    **_BODY_PROBLEMS,
    200: {"model": Released, "description": "Given back, and the services run again"},
    202: {"model": Pending, "description": "Not yet"},
    404: {"model": Problem, "description": "There is no such lease"},
    500: {"model": Problem, "description": "The services did not come back"},
}
STATUS: Responses = {**_PROBLEMS}
METRICS: Responses = {
    code: {
        "description": told["description"],
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for code, told in _PROBLEMS.items()
}
READY: Responses = {503: {"model": Health, "description": "An error, or a service is down"}, 421: _PROBLEMS[421]}
"""What each path may answer, beside what its function returns."""

"""Where a tick keeps what each call brought."""

from voxint.gpu_phase.plan import Call

FIELDS = {
    Call.PROBE_LLM: "llm",
    Call.INSPECT: "services",
    Call.HEALTH: "services",
    Call.STATUS: "status",
    Call.ACQUIRE: "acquire",
    Call.RENEW: "renewal",
    Call.RELEASE: "release",
}

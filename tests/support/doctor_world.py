"""The settings of a Voxint that doctor looks at: a database, Redis, and addresses where nobody listens."""

from __future__ import annotations

CLOSED = "http://127.0.0.1:9"


def environment(tmp_path, database_url, redis_url, **more):
    (tmp_path / "media").mkdir(exist_ok=True)
    services = {f"{name}_URL": CLOSED for name in ("WHISPER", "PYANNOTE", "TITANET")}
    leases = {f"GPU_LEASE_{name}_URL": f"{CLOSED}/gpu" for name in ("ACQUIRE", "RELEASE", "STATUS")}
    return {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "MEDIA_ROOT": str(tmp_path / "media"),
        "COMPUTE_TIER": "simulated",
        "GPU_PHASE_ENABLED": "true",
        "SERVICE_CONTROL": "process",
        "SERVICE_STATE_DIR": str(tmp_path / "run"),
        "LLM_BASE_URL": f"{CLOSED}/v1",
        **services,
        **leases,
        **more,
    }

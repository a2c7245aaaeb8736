"""The names of queues and tasks. They stand in messages: an old worker and a new one must agree."""

from __future__ import annotations

from voxint.gpu_phase.model import Lane

TICK_TASK = "voxint.gpu_phase_tick"
WORK_TASK = "voxint.work"
SWEEP_TASK = "voxint.work_sweep"

TICK_QUEUE = "gpu_phase"
"""Only the gpu-phase worker consumes this one."""
SWEEP_QUEUE = "voxint_sweep"
LANE_QUEUE = {Lane.GPU: "voxint_gpu_lane", Lane.POST: "voxint_post_lane"}
WORK_QUEUES = (*LANE_QUEUE.values(), SWEEP_QUEUE)
"""What a regular worker consumes."""

BEAT_KEY = "voxint:beat"
"""Beat writes this into Redis whenever it looks at a queue; it is gone when beat has been silent for a while."""
BEAT_SILENT_SECONDS = 120

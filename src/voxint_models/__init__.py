"""The three model servers, and a small language model. They share only the wire with voxint."""

import os

# numpy's matrix library reads this when it is loaded. The voice network's matrices are small: more threads than one
# wait for each other in a loop, which on a busy machine costs ten times the work itself.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# CTranslate2's threads sleep while they wait, for the same reason.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

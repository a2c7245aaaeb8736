"""The sums of changes of phase that are too old to be kept one by one: counters must not fall."""

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE gpu_phase_total (
            from_phase TEXT NOT NULL,
            to_phase TEXT NOT NULL,
            cause TEXT NOT NULL,
            times BIGINT NOT NULL,
            seconds DOUBLE PRECISION NOT NULL,
            CONSTRAINT pk_gpu_phase_total PRIMARY KEY (from_phase, to_phase, cause)
        )
    """)

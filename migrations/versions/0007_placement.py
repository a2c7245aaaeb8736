"""On which device each model service was last seen, and how fast it is on this host's GPU."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE placement (
            service TEXT NOT NULL,
            verdict TEXT NOT NULL,
            expected TEXT NOT NULL,
            device TEXT,
            evidence TEXT NOT NULL,
            why TEXT NOT NULL,
            seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
            starting_since TIMESTAMP WITH TIME ZONE,
            restarts INTEGER DEFAULT 0 NOT NULL,
            CONSTRAINT pk_placement PRIMARY KEY (service),
            CONSTRAINT ck_placement_verdict_is_known CHECK (verdict IN ('ok', 'wrong', 'slow', 'unknown', 'not_expected')),
            CONSTRAINT ck_placement_restarts_not_negative CHECK (restarts >= 0),
            CONSTRAINT ck_placement_restarts_of_a_start CHECK (restarts = 0 OR starting_since IS NOT NULL)
        )
    """)
    op.execute("""
        CREATE TABLE placement_baseline (
            service TEXT NOT NULL,
            rate FLOAT NOT NULL,
            unit TEXT NOT NULL,
            made_at TIMESTAMP WITH TIME ZONE NOT NULL,
            CONSTRAINT pk_placement_baseline PRIMARY KEY (service),
            CONSTRAINT ck_placement_baseline_rate_is_positive CHECK (rate > 0)
        )
    """)

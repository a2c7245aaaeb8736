"""What somebody was told, or is to be told, about a fault."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE alert (
            code TEXT NOT NULL,
            text TEXT NOT NULL,
            since TIMESTAMP WITH TIME ZONE NOT NULL,
            ended_at TIMESTAMP WITH TIME ZONE,
            told BOOLEAN DEFAULT false NOT NULL,
            tried_at TIMESTAMP WITH TIME ZONE,
            CONSTRAINT pk_alert PRIMARY KEY (code)
        )
    """)

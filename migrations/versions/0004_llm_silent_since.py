"""Since when the language model has not answered, for doctor, the banner and the alert."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("ALTER TABLE gpu_phase ADD COLUMN llm_silent_since TIMESTAMP WITH TIME ZONE")

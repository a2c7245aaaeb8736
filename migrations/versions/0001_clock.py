"""The one clock. Tests shift it by replacing the function."""

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute("""
        CREATE FUNCTION voxint_now() RETURNS timestamptz
        LANGUAGE sql VOLATILE
        AS 'SELECT clock_timestamp()'
    """)

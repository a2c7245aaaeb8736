"""Alembic's entry: runs the migrations on the connection that voxint.db.migrate hands over."""

from alembic import context
from sqlalchemy import text

from voxint.db.tables import METADATA

connection = context.config.attributes["connection"]
connection.execute(text("SET LOCAL lock_timeout = '30s'"))
connection.execute(text("SET LOCAL statement_timeout = '120s'"))
context.configure(connection=connection, target_metadata=METADATA, compare_type=True)
with context.begin_transaction():
    context.run_migrations()

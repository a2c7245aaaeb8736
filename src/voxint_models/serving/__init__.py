"""What every model server has: one inference at a time, a bounded queue, bounded uploads, health, and a quick end."""

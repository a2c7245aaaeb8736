"""Celery: the app, the schedule, thin tasks, and waking workers up."""

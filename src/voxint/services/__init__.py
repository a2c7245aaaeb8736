"""The model services: whether they run, whether they answer, and how they are started and stopped."""

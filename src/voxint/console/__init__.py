"""The console: server-rendered pages."""

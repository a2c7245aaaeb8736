"""The console's routes: one module a page."""

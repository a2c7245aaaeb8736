"""Everything on one machine without Docker: embedded servers, the supervisor of all processes, and the demo."""

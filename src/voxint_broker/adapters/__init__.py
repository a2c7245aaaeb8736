"""How each kind of service is looked at, stopped and started. The engine knows only the protocol."""

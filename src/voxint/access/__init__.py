"""Who may use the console: the password, the sessions, one-time links, and the record of what people did."""

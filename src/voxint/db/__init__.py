"""The database: its tables, its engine, its one clock, and the runner of the migrations."""

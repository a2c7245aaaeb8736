"""Stand-ins for the model servers: the same wire and the same rules for the card, no model. For tests and dry runs."""

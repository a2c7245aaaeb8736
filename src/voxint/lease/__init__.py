"""The lease broker's client: bytes in, outcomes out."""

"""Everything on one machine without Docker, GPU or servers to install."""

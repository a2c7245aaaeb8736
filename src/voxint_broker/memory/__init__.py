"""Is the GPU's memory free? Each kind of reading answers yes, no, or that it cannot tell."""

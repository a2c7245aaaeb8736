"""`voxint demo`: recordings become transcripts on this machine, the GPU changing hands on the way, checked to the end."""

"""The stages of a run. `table` has them all; their order alone stands in `order`, for those that only look."""

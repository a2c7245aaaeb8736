"""Whether a model service really works on the device that it should work on, and how that can be known."""

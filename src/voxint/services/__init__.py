"""The model services: starting, stopping, inspecting and asking them."""

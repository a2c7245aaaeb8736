"""The reference broker: stops and starts the other service, and leases the GPU. Shares only the wire with voxint."""

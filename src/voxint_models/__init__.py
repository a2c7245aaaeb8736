"""The three model servers, and a small language model. They share only the wire with voxint."""

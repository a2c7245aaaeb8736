"""A small language model over OpenAI's chat call: it stands in where no other is configured."""

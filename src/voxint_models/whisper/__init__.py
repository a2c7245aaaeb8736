"""Speech to text over OpenAI's transcription call."""

"""What makes the messages reveal less."""

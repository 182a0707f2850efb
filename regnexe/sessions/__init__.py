"""What can be asked of an agent's sessions."""

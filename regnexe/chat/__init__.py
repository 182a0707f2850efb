"""What `regnexe chat` does: an interactive session in a terminal, or one answer for each line of a pipe."""

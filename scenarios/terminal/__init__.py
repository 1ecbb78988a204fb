"""Tasks for a shell, whose check runs in the same folder."""

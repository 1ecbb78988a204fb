"""A config in its run folder: opened, played, scored. What the commands and the entrance for Python
share; it knows no command line and prints nothing."""

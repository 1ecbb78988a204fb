"""Questions out of any data set, with graders that junk cannot please."""

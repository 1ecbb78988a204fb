"""What the desk is told of retail: its words, its names, what is judged."""

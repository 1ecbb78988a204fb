"""Who sits at a desk: scripted customers and assistants, and customers that a model speaks for."""

"""What any engine needs that has a model folder: its template, its vocabulary, its adapters."""

"""Folders of tau-bench and tau2-bench, and views of them that neither format changes."""

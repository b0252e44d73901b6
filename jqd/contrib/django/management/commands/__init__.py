"""One file for each."""

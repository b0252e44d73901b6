"""The base words: what every room may use, each written once. They know nothing of any room."""

"""Base words that every room may use, each declared once. They know of no room."""

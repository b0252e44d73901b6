"""Integrations with web frameworks, to push and run jobs in their programs."""

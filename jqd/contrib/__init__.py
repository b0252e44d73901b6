"""Integrations with web frameworks: programs that use them can push jobs, and run jobs in their own server."""

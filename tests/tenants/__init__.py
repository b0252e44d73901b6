"""Tenants: `jqd/tenants/`."""

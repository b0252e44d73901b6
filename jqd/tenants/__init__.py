"""Tenants: their tokens, their quotas, and the audit, which notes who changed what (docs/adr/0054)."""

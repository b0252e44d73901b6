"""Tenants: their tokens, their quotas and the notes of who changed what (docs/adr/0054)."""

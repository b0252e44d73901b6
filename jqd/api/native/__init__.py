"""The native interface, `/v1` (docs/HTTP.md): decode, one call of the desk, render."""

"""The native interface, `/v1` (docs/use/HTTP.md): decode, one call of the service, render."""

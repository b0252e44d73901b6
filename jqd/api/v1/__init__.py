"""jqd's own API, `/v1` (docs/use/HTTP.md): each handler decodes, makes one call of the service, and encodes."""

"""Jobs that follow the success of another job (docs/adr/0047)."""

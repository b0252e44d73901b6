"""The daemon's roles: one file, one loop, one task. The only place where rooms meet."""

"""The daemon's loops: one file, one loop, one task. Only here do journal, store, scheduler and runner meet."""

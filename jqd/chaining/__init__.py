"""Jobs that follow the success of another job, and jobs that wait for others (docs/adr/0047)."""

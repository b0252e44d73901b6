"""One program a queue, run by the interpreter of that queue's environment: it pushes, and where need be it works."""

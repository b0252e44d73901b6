"""How fast jqd is, measured side by side in one run. `python -m bench NAME [--jobs N …] [--json FILE]`."""

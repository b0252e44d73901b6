"""`python -m bench.peers.programs NAME push|work|prepare`: that function of that program."""

import sys
from importlib import import_module

if __name__ == "__main__":
    name, what = sys.argv[1:]
    getattr(import_module(f"bench.peers.programs.{name}"), what)()

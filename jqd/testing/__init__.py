"""Fakes for the tests of jqd itself and of programs that use it.

`store` and `trial` run the store's Lua functions. For this they need `lupa`, which the extra `testing` installs.
"""

"""Shipped fakes, for the tests of jqd and of programs that use it.

`store` and `sim` run the store's Lua functions, for which they need `lupa`, of the extra `testing`.
"""

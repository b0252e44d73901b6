"""Shipped fakes: what the tests of jqd, and of what is built on it, stand on.

`store` and `sim` run the store's Lua functions, for which they need `lupa`, of the extra `testing`.
"""

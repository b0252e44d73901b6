"""Shipped fakes: what the tests of jqd, and of what is built on it, stand on."""

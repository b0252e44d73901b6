"""Types and functions that all packages of jqd may use. This package imports no other package of jqd."""

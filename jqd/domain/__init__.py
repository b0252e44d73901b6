"""Types and functions that all packages of jqd may use. This package imports none of the others."""

"""HTTP APIs that are compatible with other job systems. Each file has one API, and none imports another."""

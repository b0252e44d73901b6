"""APIs for clients of other systems: one file each, and none imports another."""

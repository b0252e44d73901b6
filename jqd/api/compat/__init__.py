"""Surfaces for clients of other systems: one file each, none knows another."""

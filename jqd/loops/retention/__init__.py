"""Deletes journal records that no daemon needs."""

"""Deletes from the journal what nobody needs any more."""

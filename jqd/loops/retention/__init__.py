"""What may be deleted from the journal and the store, and when."""

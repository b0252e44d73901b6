"""Numbers over time: what each daemon counted, minute by minute, kept in the store for eight days."""

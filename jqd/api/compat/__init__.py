"""One surface of other systems a file, for clients that speak their formats; none knows another."""

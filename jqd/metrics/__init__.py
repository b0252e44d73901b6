"""What this daemon counts, and how Prometheus reads it and the numbers of the store."""

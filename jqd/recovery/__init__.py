"""Recovery of a daemon when the store lost data, or when this or another daemon died."""

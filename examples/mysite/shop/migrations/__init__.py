"""As `makemigrations` makes them."""

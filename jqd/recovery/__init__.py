"""What a daemon does when the store lost something, or when one of them died."""

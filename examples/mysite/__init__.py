"""A Django project whose tasks are jobs."""

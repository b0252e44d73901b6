"""Jobs of web applications: pushed in a request, and run by the application itself."""

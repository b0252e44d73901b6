"""Jobs inside programs built with a web framework, pushed and run there."""

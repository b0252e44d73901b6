"""Jobs in programs built with a web framework: pushed there as anywhere, and run there behind a URL of theirs."""

"""Programs that run the code inside a context, one file for each language. They import nothing of jqd."""

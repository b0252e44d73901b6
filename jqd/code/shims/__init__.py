"""Programs that run in a context beside its code, one file a language. None imports anything of jqd."""

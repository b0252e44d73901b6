"""What runs in a context beside its code, one file a language. None of them imports anything of jqd."""

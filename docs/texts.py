"""What stands as text below the fields of a class: the pages that are written from the code read it here."""

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise
from typing import Any


@cache
def texts_of(kind: type[Any]) -> dict[str, str]:
    """Field → the text below it, of a class and of those that it is made of."""
    texts: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        if each.__module__.partition(".")[0] != "jqd":
            continue
        for node in ast.parse(textwrap.dedent(inspect.getsource(each))).body:
            for field, below in pairwise(node.body if isinstance(node, ast.ClassDef) else []):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        texts[name] = inspect.cleandoc(text)
    return texts

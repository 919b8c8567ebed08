"""YAML as plain values, read strictly: no objects, no key twice, `1e-5` a number, a date a text."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

import yaml

from sweeper.errors import UserError

_FLOAT: Final = "tag:yaml.org,2002:float"
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """The safe loader with the numbers of YAML 1.2, which people expect, and without dates."""

    yaml_implicit_resolvers = {  # noqa: RUF012  as the base class has it
        first: [(tag, pattern) for tag, pattern in known if tag not in (_FLOAT, _TIMESTAMP)]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # Any: YAML
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is there twice", key_node.start_mark)
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"""^(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?
            |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
            |[-+]?\.(?:inf|Inf|INF)
            |\.(?:nan|NaN|NAN))$""",
        re.VERBOSE,
    ),
    list("-+0123456789."),
)


def read_yaml_mapping(path: Path) -> tuple[dict[str, Any], dict[str, int]]:  # Any: plain values of many kinds
    """Read a file whose top is a mapping; gives it, and the line of each of its keys.

    Raises:
        UserError: it cannot be read, is not YAML, or no mapping with text keys; names file and line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"{path} cannot be read: {reason}") from error
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        top = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        raise UserError(f"{path}{line} is not plain YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not plain YAML: {str(error).splitlines()[0]}") from None
    finally:
        loader.dispose()
    if not isinstance(top, dict) or not isinstance(node, yaml.MappingNode):
        raise UserError(f"{path} holds no mapping", remedy="write one `key: value` a line")
    lines = {str(key_node.value): key_node.start_mark.line + 1 for key_node, _ in node.value}
    for key in top:
        if not isinstance(key, str):
            raise UserError(f"{path} has the key {key!r}, which is not text", remedy="put it in quotes")
    return top, lines

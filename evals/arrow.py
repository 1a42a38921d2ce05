"""Records as Arrow types, so that a table's columns follow the types of `evals.types` and can't fall behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_type(kind: Any) -> pa.DataType:
    """The Arrow type for a type made of structs, tuples, dicts of strings, numbers, strings and None.

    A struct becomes a struct; a tuple a list; a dict a list of (key, value), as Arrow's maps are not read everywhere.
    Raises TypeError for anything else.
    """
    return _arrow(inspect.type_info(kind))


def arrow_value(value: Any) -> Any:
    """A record as `pyarrow` takes it for `arrow_type` of its type (whose tuples hold one type each)."""
    if isinstance(value, msgspec.Struct):
        return {name: arrow_value(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, (tuple, list)):
        plain = not value or isinstance(value[0], (int, float, str))  # thousands of token ids: not one by one
        return value if plain else [arrow_value(v) for v in value]
    if isinstance(value, dict):
        return [{"key": k, "value": arrow_value(v)} for k, v in value.items()]
    return value


def _arrow(info: inspect.Type) -> pa.DataType:
    import pyarrow as pa

    match info:
        case inspect.StructType():
            return pa.struct([(field.name, _arrow(field.type)) for field in info.fields])
        case inspect.VarTupleType() | inspect.ListType():
            return pa.list_(_arrow(info.item_type))
        case inspect.TupleType():
            return pa.list_(_one([_arrow(item) for item in info.item_types]))
        case inspect.DictType():
            return pa.list_(pa.struct([("key", _arrow(info.key_type)), ("value", _arrow(info.value_type))]))
        case inspect.UnionType():
            return _one([_arrow(t) for t in info.types if not isinstance(t, inspect.NoneType)])
        case inspect.BoolType():
            return pa.bool_()
        case inspect.IntType():
            return pa.int64()
        case inspect.FloatType():
            return pa.float64()
        case inspect.StrType() | inspect.LiteralType():
            return pa.string()
    raise TypeError(f"expected a type that a column can have, found {info}")


def _one(types: list[pa.DataType]) -> pa.DataType:
    if len(set(types)) != 1:
        raise TypeError(f"expected one type in a column, found {types}")
    return types[0]

# SPDX-License-Identifier: Apache-2.0
"""What functions a tool's source has: run inside a sandbox, since the source is hostile to whoever parses it.

Nothing of the source is executed. Each public function at its top level becomes a tool; its parameters become a
JSON Schema as far as their annotations say something that JSON knows, and anything else is any value.
"""

import ast
import json

PLAIN = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null", "dict": "object",
         "Dict": "object", "list": "array", "List": "array", "tuple": "array", "Tuple": "array", "set": "array",
         "bytes": "string"}
TEXT_MAX, FUNCTIONS_MAX, PARAMETERS_MAX, DEPTH_MAX = 4000, 64, 64, 8


def name_of(node):
    """The last word of a name; typing.List is List."""
    if isinstance(node, ast.Constant) and node.value is None:
        return "None"
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def any_of(schemas):
    if not all(schemas):
        return {}
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def literal(node):
    values = [n.value for n in (node.elts if isinstance(node, ast.Tuple) else [node]) if isinstance(n, ast.Constant)]
    good = [v for v in values if v is None or isinstance(v, (str, int, float, bool))]
    return {"enum": good} if good and len(good) == len(values) else {}


def subscript(node, depth):
    name = name_of(node.value)
    inner = node.slice
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name == "Literal":
        return literal(inner)
    if name == "Optional":
        return any_of([schema_of(inner, depth), {"type": "null"}])
    if name == "Union":
        return any_of([schema_of(p, depth) for p in parts])
    if name == "Annotated":
        return schema_of(parts[0], depth)
    if PLAIN.get(name) == "array" and name not in ("tuple", "Tuple"):
        return {"type": "array", "items": schema_of(parts[0], depth)}
    if PLAIN.get(name) == "object" and len(parts) == 2:
        return {"type": "object", "additionalProperties": schema_of(parts[1], depth)}
    return {"type": PLAIN[name]} if name in PLAIN else {}


def schema_of(node, depth=0):
    if node is None or depth > DEPTH_MAX:
        return {}
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except (SyntaxError, ValueError):
            return {}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return any_of([schema_of(node.left, depth + 1), schema_of(node.right, depth + 1)])
    if isinstance(node, ast.Subscript):
        return subscript(node, depth + 1)
    name = name_of(node)
    return {"type": PLAIN[name]} if name in PLAIN else {}


def default_of(node):
    """(True, value) where it is a value that JSON can say."""
    try:
        value = ast.literal_eval(node)
        json.dumps(value, allow_nan=False)
        return True, value
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False, None


def input_schema(function, given):
    args = function.args
    rows = list(zip(args.args, [None] * (len(args.args) - len(args.defaults)) + args.defaults))
    rows += list(zip(args.kwonlyargs, args.kw_defaults))
    properties, required = {}, []
    for arg, default in rows[:PARAMETERS_MAX]:
        schema = dict(schema_of(arg.annotation))
        known, value = default_of(default) if default is not None else (False, None)
        if arg.arg in given: # its value is the owner's affair
            schema["description"] = "has a value of the tool's own where it is not given"
        elif known:
            schema["default"] = value
        elif default is None:
            required.append(arg.arg)
        properties[arg.arg] = schema
    return {"type": "object", "properties": properties, "required": required,
            "additionalProperties": args.kwarg is not None}


def describe(source, given, schemas):
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as e:
        return {"error": "%s (line %s)" % (getattr(e, "msg", None) or e, getattr(e, "lineno", None) or "?")}
    found, left_out = {}, []
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name.startswith("_"):
            continue
        found.pop(node.name, None)
        if isinstance(node, ast.AsyncFunctionDef):
            left_out.append({"name": node.name, "why": "it is asynchronous"})
        elif node.args.posonlyargs:
            left_out.append({"name": node.name, "why": "it has parameters without a name"})
        elif not node.name.isascii() or len(node.name) > 128:
            left_out.append({"name": node.name[:128], "why": "its name is no name of a tool"})
        else:
            found[node.name] = {
                "name": node.name,
                "description": (ast.get_docstring(node) or "")[:TEXT_MAX],
                "inputSchema": schemas.get(node.name) or input_schema(node, given),
                # Annotations are no promise: what comes back may be anything.
                "outputSchema": {"type": "object", "properties": {"result": {}, "tool_id": {"type": "string"}},
                                 "required": ["result", "tool_id"]},
            }
    unknown = sorted(set(schemas) - set(found))
    if unknown:
        return {"error": "schema: no public function is called %s" % ", ".join(unknown)[:200]}
    if not found:
        return {"error": "it has no public function at its top level"}
    if len(found) > FUNCTIONS_MAX:
        return {"error": "it has more than %d public functions" % FUNCTIONS_MAX}
    return {"functions": list(found.values()), "left_out": left_out[:FUNCTIONS_MAX]}

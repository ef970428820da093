"""The source of a decoder: straight-line Python over the data ``d``, the position ``p`` and the end ``e``.

A count is checked against the bytes that are left before a list is made, and against a budget of elements for the whole
message, so that nothing is allocated for what a peer only declares. The forms of a codec (``Form``) differ in what they do
with a message of many elements.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from ottla.wire import primitives
from ottla.wire.generator import ELEMENTS_MAX, Form, Generator
from ottla.wire.schema import FIELDS, FIXED_FORMATS, Field, Request

REQUEST_ELEMENTS_MAX: Final = 1 << 18
"""Array elements in one request: what a hostile peer can make the broker allocate (CVE-2026-111108)."""


class DecoderSource(Generator):
    def __init__(self, cls: type, version: int, form: Form = Form.WHOLE) -> None:
        super().__init__(cls, version, form=form)
        self.format = ""
        self.targets: list[str] = []
        self.limit = REQUEST_ELEMENTS_MAX if issubclass(cls, Request) else ELEMENTS_MAX

    def source(self) -> str:
        expression = self.struct_body(self.cls)
        body = "\n".join(self.lines)
        return f"def decode(d, p, e):\n{self.prologue(self.limit)}{body}\n    return {expression}, p\n"

    def fixed(self, code: str, target: str) -> None:
        self.format += code
        self.targets.append(target)

    def flush(self) -> None:
        if not self.format:
            return
        layout = struct.Struct(">" + self.format)
        self.line(f"{', '.join(self.targets)}, = {self.bind('U', layout.unpack_from)}(d, p); p += {layout.size}")
        self.format, self.targets = "", []

    def struct_body(self, cls: type) -> str:
        """Reads the fields into variables; the expression that makes the object of them is returned."""
        variables: dict[str, str] = {}
        for name, field in self.plain(cls):
            variables[name] = self.value(field, f"{cls.__name__}.{name}")
        self.flush()
        if self.is_flexible:
            tagged = self.tagged(cls)
            if tagged:
                self.tag_section(tagged, variables, cls)
            else:
                self.line(f"if d[p]: p = {self.use(primitives.skip_tags)}(d, p, e)")
                self.line("else: p += 1")
        arguments = [variables.get(name) or self.default(field) for name, field in FIELDS[cls].items()]
        return f"{self.bind(cls.__name__ + '_', cls)}({', '.join(arguments)})"

    def default(self, field: Field) -> str:
        if isinstance(field.default, (int, float, bool)) or field.default is None or field.default in ("", b""):
            return repr(field.default)
        if isinstance(field.default, list):
            return repr(field.default)
        return self.bind("D", field.default)

    def tag_section(self, tagged: list[tuple[str, Field]], variables: dict[str, str], cls: type) -> None:
        names = {"check_tag": primitives.check_tag, "bad_tag_size": primitives.bad_tag_size, "read_uvarint": primitives.read_uvarint}
        self.names.update(names)
        for name, field in tagged:
            variables[name] = self.fresh("v")
            self.line(f"{variables[name]} = {self.default(field)}")
        count, last, tag, size, end = (self.fresh(prefix) for prefix in ("n", "l", "t", "s", "q"))
        self.line(f"{count}, p = read_uvarint(d, p); {last} = -1")
        self.line(f"if {count} > {primitives.TAGS_MAX}: {self.use(primitives.too_many_tags)}({count})")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        self.line(f"{tag} = d[p]; {size} = d[p + 1]")
        self.line(f"if {tag} < 128 > {size}: p += 2")  # most are
        self.line(f"else: {tag}, p = read_uvarint(d, p); {size}, p = read_uvarint(d, p)")
        self.line(f"{end} = p + {size}")
        self.line(f"if {tag} <= {last} or {end} > e: check_tag({tag}, {last}, {end}, e)")
        self.line(f"{last} = {tag}")
        keyword = "if"
        for name, field in tagged:
            self.line(f"{keyword} {tag} == {field.tag}:")
            keyword = "elif"
            self.depth += 1
            value = self.value(field, f"{cls.__name__}.{name}")
            self.flush()
            self.line(f"{variables[name]} = {value}")
            self.line(f"if p != {end}: bad_tag_size({tag})")
            self.depth -= 1
        self.line(f"else: p = {end}")
        self.depth -= 1

    def value(self, field: Field, what: str) -> str:
        kind = field.kind
        if kind in FIXED_FORMATS:
            target = self.fresh("v")
            self.fixed(FIXED_FORMATS[kind][0], target)
            return target
        if kind == "struct":
            return self.struct(field)
        return self.sized(field, what)

    def struct(self, field: Field) -> str:
        target = self.fresh("v")
        if not field.is_nullable_in(self.version):
            expression = self.struct_body(field.element)
            self.line(f"{target} = {expression}")
            return target
        mark = self.fresh("n")
        self.fixed("b", mark)
        self.flush()
        self.line(f"if {mark} < 0: {target} = None")
        self.line("else:")
        self.depth += 1
        expression = self.struct_body(field.element)
        self.line(f"{target} = {expression}")
        self.depth -= 1
        return target

    def sized(self, field: Field, what: str) -> str:
        length, target = self.fresh("n"), self.fresh("v")
        if self.is_flexible:
            self.flush()
            self.names["read_uvarint"] = primitives.read_uvarint
            self.line(f"{length} = d[p] - 1")
            self.line(f"if {length} < 127: p += 1")
            self.line("else:")
            self.depth += 1
            self.line(f"{length}, p = read_uvarint(d, p); {length} -= 1")
            if field.kind == "string":  # the other form of a length has no room for more
                self.line(f"if {length} > {primitives.STRING_BYTES_MAX}: {self.use(primitives.long_string)}({what!r}, {length})")
            self.depth -= 1
        else:
            self.fixed("h" if field.kind == "string" else "i", length)
            self.flush()
        if field.is_nullable_in(self.version):
            self.line(f"if {length} == -1: {target} = None")
            self.line("else:")
            self.depth += 1
            self.content(field, length, target, what)
            self.depth -= 1
        else:
            self.content(field, length, target, what)
        return target

    def content(self, field: Field, length: str, target: str, what: str) -> None:
        if field.kind != "array":
            end = self.fresh("q")
            self.line(f"{end} = p + {length}")
            self.line(f"if {end} > e or {length} < 0: {self.use(primitives.bad_length)}({what!r}, {length}, e - p)")
            wrap = {"string": f"text(d[p:{end}])", "binary": f"bytes(d[p:{end}])", "records": f"d[p:{end}]"}[field.kind]
            self.line(f"{target} = {wrap}; p = {end}")
            return
        element = field.element
        size = self.size_min(element)
        self.line(f"budget -= {length}")
        check = f"{length} < 0 or budget < 0 or {length} * {size} > e - p"
        problem = primitives.bad_or_many if self.form is Form.FEW else primitives.bad_count
        self.line(f"if {check}: {self.use(problem)}({what!r}, {length}, e - p)")
        if isinstance(element, Field) and element.kind in FIXED_FORMATS and element.kind != "uuid":
            forms = self.bind("A", primitives.array_forms(FIXED_FORMATS[element.kind][0]))
            self.line(f"{target} = list({forms}[{length}].unpack_from(d, p)); p += {length} * {size}")
            return
        append = self.fresh("a")
        self.line(f"{target} = []; {append} = {target}.append")
        self.line(f"for _ in range({length}):")
        self.depth += 1
        self.step()
        expression = self.value(element, what) if isinstance(element, Field) else self.struct_body(element)
        self.flush()
        self.line(f"{append}({expression})")
        self.depth -= 1

    def size_min(self, element: Any) -> int:
        """Returns the fewest bytes that one element can take, which a declared count is checked against."""
        if isinstance(element, Field):
            if element.kind in FIXED_FORMATS:
                return FIXED_FORMATS[element.kind][1]
            if element.kind == "struct":
                return 1 if element.is_nullable_in(self.version) else self.size_min(element.element)
            return 1 if self.is_flexible else 2 if element.kind == "string" else 4
        return sum(self.size_min(field) for _, field in self.plain(element)) + (1 if self.is_flexible else 0) or 1

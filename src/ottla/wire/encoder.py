"""The source of an encoder: straight-line Python that hands pieces of bytes to ``w``.

Neighbouring fields of fixed size are gathered into one run and written by one ``struct`` call. An element of an array of
structs may be ``bytes``: encoded before, and perhaps part of many messages.
"""

from __future__ import annotations

import struct

from ottla.wire import primitives
from ottla.wire.generator import ELEMENTS_MAX, Form, Generator
from ottla.wire.schema import FIXED_FORMATS, Field


class EncoderSource(Generator):
    def __init__(self, cls: type, version: int, message: type | None = None, *, form: Form = Form.WHOLE) -> None:
        super().__init__(cls, version, message, form=form)
        self.format = ""  # a run of fixed fields not yet written
        self.arguments: list[str] = []
        self.out = "w"

    def source(self) -> str:
        self.struct_body(self.cls, "m")
        self.flush()
        return f"def encode(m, w):\n{self.prologue(ELEMENTS_MAX)}" + "\n".join(self.lines) + "\n"

    def fixed(self, code: str, argument: str | None) -> None:
        self.format += code
        if argument is not None:
            self.arguments.append(argument)

    def flush(self) -> None:
        if not self.format:
            return
        if not self.arguments:
            constant = self.bind("C", bytes(struct.calcsize(">" + self.format)))
            self.line(f"{self.out}({constant})")
        else:
            pack = self.bind("P", struct.Struct(">" + self.format).pack)
            self.line(f"{self.out}({pack}({', '.join(self.arguments)}))")
        self.format, self.arguments = "", []

    def struct_body(self, cls: type, owner: str) -> None:
        for name, field in self.plain(cls):
            self.value(field, f"{owner}.{name}", f"{cls.__name__}.{name}")
        if self.is_flexible:
            tagged = self.tagged(cls)
            if tagged:
                self.tag_section(tagged, owner, cls)
            else:
                self.fixed("x", None)  # an empty tag section is one zero byte

    def tag_section(self, tagged: list[tuple[str, Field]], owner: str, cls: type) -> None:
        self.flush()
        pieces, outer = self.fresh("t"), self.out
        self.line(f"{pieces} = []")
        for name, field in tagged:
            value = self.fresh("v")
            self.line(f"{value} = {owner}.{name}")
            default = self.bind("D", field.default)
            self.line(f"if {value} is not {default}:" if field.default is None else f"if {value} != {default}:")
            self.depth += 1
            self.tag(field, value, pieces, f"{cls.__name__}.{name}")
            self.out = outer
            self.depth -= 1
        self.line(f"{outer}(uvarint(len({pieces})))")
        self.line(f"if {pieces}: {outer}(E.join({pieces}))")

    def tag(self, field: Field, value: str, pieces: str, what: str) -> None:
        """Writes the tag, size and content of a field that is written; a single fixed one, such as a leader, is one addition."""
        assert field.tag is not None
        tag = primitives.uvarint(field.tag)
        if field.kind in FIXED_FORMATS:
            packing = struct.Struct(">" + FIXED_FORMATS[field.kind][0])
            head = self.bind("C", tag + primitives.uvarint(packing.size))
            self.line(f"{pieces}.append({head} + {self.bind('P', packing.pack)}({value}))")
            return
        inner = self.fresh("i")
        self.line(f"{inner} = []; {inner}w = {inner}.append")
        self.out = f"{inner}w"
        self.value(field, value, what, is_tag=True)
        self.flush()
        self.line(f"{inner} = E.join({inner}); {pieces}.append({self.bind('C', tag)} + uvarint(len({inner})) + {inner})")

    def value(self, field: Field, expression: str, what: str, *, is_tag: bool = False) -> None:
        kind = field.kind
        if kind in FIXED_FORMATS:
            self.fixed(FIXED_FORMATS[kind][0], expression)
        elif kind == "struct":
            self.struct(field, expression, is_tag=is_tag)
        else:
            self.sized(field, expression, what)

    def struct(self, field: Field, expression: str, *, is_tag: bool) -> None:
        if not field.is_nullable_in(self.version):
            self.struct_body(field.element, expression)
            return
        self.flush()
        value = self.fresh("v")
        self.line(f"{value} = {expression}")
        self.line(f"if {value} is None: {self.out}({self.bind('C', struct.pack('b', -1))})")
        self.line("else:")
        self.depth += 1
        self.line(f"{self.out}({self.bind('C', struct.pack('b', 1))})")
        self.struct_body(field.element, value)
        self.flush()
        self.depth -= 1

    def sized(self, field: Field, expression: str, what: str) -> None:
        """Writes a string, bytes, records or an array: its length, then its content."""
        value = self.fresh("v")
        code = "h" if field.kind == "string" else "i"
        encoded = "{}.encode()"
        if what.endswith("error_message"):  # it may quote what a peer sent
            encoded = f"{self.use(primitives.cut_text)}({{}})"
        content = encoded.format(value) if field.kind == "string" else value
        if not field.is_nullable_in(self.version):
            if field.kind == "string":
                self.line(f"{value} = {encoded.format(expression)}")
            else:
                self.line(f"{value} = {expression}")
                if field.default is None:
                    self.line(f"if {value} is None: {self.use(primitives.bad_null)}({what!r})")
            self.length(f"len({value})", code)
            self.flush()
            self.content(field, value, what)
            return
        self.flush()
        self.line(f"{value} = {expression}")
        null = b"\0" if self.is_flexible else struct.pack(">" + code, -1)
        self.line(f"if {value} is None: {self.out}({self.bind('C', null)})")
        self.line("else:")
        self.depth += 1
        if content != value:
            self.line(f"{value} = {content}")
        self.length(f"len({value})", code)
        self.flush()
        self.content(field, value, what)
        self.depth -= 1

    def length(self, expression: str, code: str) -> None:
        if self.is_flexible:
            self.flush()
            length = f"{self.use(primitives.string_length)}({expression})" if code == "h" else f"uvarint({expression} + 1)"
            self.line(f"{self.out}({length})")
        else:
            self.fixed(code, expression)

    def content(self, field: Field, value: str, what: str) -> None:
        if field.kind != "array":
            self.line(f"{self.out}({value})")
            return
        element = field.element
        if isinstance(element, Field) and element.kind in FIXED_FORMATS and element.kind != "uuid":
            code = FIXED_FORMATS[element.kind][0]
            self.line(f"if {value}: {self.out}({self.bind('A', primitives.array_forms(code))}[len({value})].pack(*{value}))")
            return
        if self.form is Form.FEW:
            self.line(f"if (budget := budget - len({value})) < 0: {self.use(primitives.many_elements)}()")
        item = self.fresh("e")
        self.line(f"for {item} in {value}:")
        self.depth += 1
        self.step()
        if isinstance(element, Field):
            self.value(element, item, what)
        else:
            self.line(f"if {item}.__class__ is bytes: {self.out}({item}); continue")
            self.struct_body(element, item)
        self.flush()
        self.depth -= 1

"""Contract files: tokens -> Contract, with the place of every name for later errors. Nothing is resolved here.

Grammar (docs/batch_invariance.md): file = kernel*; kernel = "kernel" NAME ["extends" NAME ("," NAME)*] "{" (axis |
parameter)* "}"; axis = "invariant_axis" NAME "symbols" names ";"; parameter = "parameter" NAME "{" semantic, policy and
aliases in any order, each ended by ";" "}"; names = "[" [NAME ("," NAME)* [","]] "]".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eval_harness.batch_invariance.contract import Contract, InvariantAxis, Parameter, Policy, Semantic
from eval_harness.batch_invariance.contract_lexer import END, NAME, Place, SourceText, Token, tokenize
from eval_harness.errors import UserError

_POLICIES = {policy.split()[0]: policy for policy in Policy}
_FIELDS = ("semantic", "policy", "aliases")


@dataclass(frozen=True)
class Declaration:
    """A contract as a file declares it: what it says, and where."""

    contract: Contract
    source: SourceText
    place: Place
    """Of the contract's name."""
    parent_places: Mapping[str, Place]
    name_places: Mapping[str, Place]
    """Of every parameter, alias and symbol."""
    doc: str
    """The comment above the contract."""
    parameter_docs: Mapping[str, str]
    """Parameter -> the comment above it."""


def parse_contracts(text: str, path: str = "<contract>") -> tuple[Contract, ...]:
    """Every contract of the text, unresolved. Raises ContractError "PATH:LINE:COLUMN: expected ..., found ..."."""
    return tuple(declaration.contract for declaration in parse_declarations(text, path))


def parse_contract_file(path: Path | str) -> Contract:
    """The one contract of a file, unresolved. Raises ContractError where there are several or none."""
    declarations = read_declarations(path)
    if len(declarations) != 1:
        source = SourceText("", str(path)) if not declarations else declarations[1].source
        place = Place(1, 1) if not declarations else declarations[1].place
        raise source.error(place, "exactly one kernel in this file", f"{len(declarations)}")
    return declarations[0].contract


def read_declarations(path: Path | str) -> tuple[Declaration, ...]:
    """Every contract of a file, with places. Raises ContractError, and UserError where it cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the path of a contract file") from None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = SourceText(data[: error.start].decode(), str(path))
        place = Place(len(before.lines), len(before.lines[-1]) + 1)
        raise before.error(place, "UTF-8 text", f"the byte {data[error.start]:#04x}") from None
    return parse_declarations(text, str(path))


def parse_declarations(text: str, path: str = "<contract>") -> tuple[Declaration, ...]:
    """Every contract of the text, with places. Raises ContractError."""
    return _Parser(SourceText(text, path)).file()


@dataclass
class _Body:
    """What a kernel's braces have held so far."""

    axes: dict[str, InvariantAxis] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    uses: dict[str, str] = field(default_factory=dict)
    """Name -> what it already is here: "a symbol of batch", "an alias of NUM_SPLITS"."""
    docs: dict[str, str] = field(default_factory=dict)


class _Parser:
    """Recursive descent, one token ahead; it stops at the first error."""

    def __init__(self, source: SourceText) -> None:
        self.source, self.tokens, self.at = source, tokenize(source), 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def take(self, kind: str, expected: str | None = None) -> Token:
        """The token, which must be of this kind: a mark, NAME or END."""
        token = self.token
        if token.kind != kind:
            raise self.source.error(token.place, expected or f"'{kind}'", token)
        self.at += 1
        return token

    def word(self, *words: str, or_mark: str = "") -> Token:
        """The token, which must be one of the words, or the mark."""
        token = self.token
        if token.kind != NAME or token.text not in words:
            if or_mark and token.kind == or_mark:
                return self.take(or_mark)
            shown = [*(f"'{word}'" for word in words), *([f"'{or_mark}'"] if or_mark else [])]
            expected = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
            raise self.source.error(token.place, expected, token, near=words)
        return self.take(NAME)

    def plain_name(self, what: str) -> Token:
        """A name without dots, as code can spell it."""
        token = self.take(NAME, what)
        if "." in token.text:
            raise self.source.error(token.place, f"{what} without dots", token)
        return token

    def file(self) -> tuple[Declaration, ...]:
        found: dict[str, Declaration] = {}
        while self.token.kind != END:
            declaration = self.kernel()
            name = declaration.contract.name
            if name in found:
                again = f"'{name}' again (first at {found[name].place})"
                raise self.source.error(declaration.place, "each contract once", again)
            found[name] = declaration
        return tuple(found.values())

    def kernel(self) -> Declaration:
        doc = self.word("kernel").comment
        name = self.take(NAME, "the contract's name")
        parents: dict[str, Place] = {}
        if self.token.kind != "{":
            self.word("extends", or_mark="{")
            self.parent(parents)
            while self.token.kind == ",":
                self.take(",")
                self.parent(parents)
        self.take("{", "',' or '{'" if parents else None)
        body = _Body()
        while (item := self.word("invariant_axis", "parameter", or_mark="}")).kind != "}":
            (self.axis if item.text == "invariant_axis" else self.parameter)(body, item.comment)
        contract = Contract(name.text, tuple(body.axes.values()), tuple(body.parameters.values()), tuple(parents))
        return Declaration(contract, self.source, name.place, parents, body.places, doc, body.docs)

    def parent(self, parents: dict[str, Place]) -> None:
        token = self.take(NAME, "the name of a contract to extend")
        if token.text in parents:
            again = f"{token} again (first at {parents[token.text]})"
            raise self.source.error(token.place, "each parent once", again)
        parents[token.text] = token.place

    def axis(self, body: _Body, doc: str) -> None:
        name = self.plain_name("the axis's name")
        if name.text in body.axes:
            raise self.source.error(name.place, "each axis once", f"{name} again")
        self.word("symbols")
        symbols = self.names("a symbol", f"a symbol of {name.text}", body)
        self.take(";")
        body.axes[name.text] = InvariantAxis(name.text, symbols)

    def parameter(self, body: _Body, doc: str) -> None:
        name = self.plain_name("the parameter's name")
        if name.text in body.parameters:
            again = f"{name} again (first at {body.places[name.text]})"
            raise self.source.error(name.place, "each parameter once", again)
        self.declare(name, "a parameter", body)
        self.take("{")
        semantic: Semantic | None = None
        policy: Policy | None = None
        aliases: tuple[str, ...] = ()
        missing = list(_FIELDS)
        while (item := self.word(*missing, or_mark="}")).kind != "}":
            missing.remove(item.text)
            if item.text == "semantic":
                semantic = Semantic(self.word(*Semantic).text)
            elif item.text == "policy":
                policy = self.policy()
            else:
                aliases = self.names("an alias", f"an alias of {name.text}", body)
            self.take(";")
        if semantic is None or policy is None:
            wanted = " and ".join(f"'{item}'" for item in missing if item != "aliases")
            raise self.source.error(item.place, f"{wanted} of {name.text}", item)
        body.parameters[name.text] = Parameter(name.text, semantic, policy, aliases)
        body.docs[name.text] = doc

    def policy(self) -> Policy:
        policy = _POLICIES[self.word(*_POLICIES).text]
        if policy is Policy.MAY_DEPEND_ON_BATCH:
            self.word("batch")
        return policy

    def names(self, what: str, use: str, body: _Body) -> tuple[str, ...]:
        """[a, b]: empty is allowed, and so is a comma behind the last."""
        self.take("[")
        found: list[str] = []
        while self.token.kind != "]":
            token = self.plain_name(f"{what} or ']'")
            self.declare(token, use, body)
            found.append(token.text)
            if self.token.kind != "]":
                self.take(",", "',' or ']'")
        self.take("]")
        return tuple(found)

    def declare(self, token: Token, use: str, body: _Body) -> None:
        """A name may be one thing in a contract."""
        if token.text in body.uses:
            again = f"{token} again (already {body.uses[token.text]}, at {body.places[token.text]})"
            raise self.source.error(token.place, "each name once in a contract", again)
        body.uses[token.text], body.places[token.text] = use, token.place

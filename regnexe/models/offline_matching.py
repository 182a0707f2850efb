"""Which tools the offline model calls for a request, and with what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from regnexe.models.offline_arguments import fill, spread
from regnexe.models.offline_text import clauses, names, sentences, stem, terms
from regnexe.models.offline_values import Source, property_words

__all__ = ["PlannedCall", "Tool", "call_anyway", "plan_calls", "refers_back"]

_THRESHOLD = 2.0
_NAMED = 10.0
_AT_MOST = 8

# Verbs that half the tools of the world carry in their name.
_WEAK = frozenset(stem(word) for word in "run list read write create update delete open start stop".split())

# The negated verb must be one of doing: "I don't know the weather" asks for it.
_REFUSAL = re.compile(
    r"(?<!why )\b(?:no need (?:to|for)|not necessary to|needn['’]?t|need not|(?:do not|don['’]?t)(?: want you to)?|"
    r"never|without(?= \w+ing\b)|instead of|rather than|avoid)\b"
    r"(?! (?:know|understand|forget|hesitate|worry|think|care|remember|see|like|have|want|mind)\b)"
    r"(?:(?! but )[^.,;!?。，；！？\n])*"
    r"|(?:不用|不要|不必|无需|无须|不需要|没必要|(?<![特分区性级类])别(?![的人]))[^。，；！？,.;!?\n]*",
    re.I,
)
_LOOKED_UP = re.compile(
    r"\byou(?:['’]ve| have)? (?:just |already |previously |earlier |recently )*"
    r"(?:looked up|checked|found|fetched|told|said|gave|got|mentioned|reported|searched|retrieved|calculated)\b"
    r"|\bdo you (?:still )?remember\b|刚才|刚刚|之前|上次|还记得",
    re.I,
)
_BACK = re.compile(
    _LOOKED_UP.pattern + r"|\b(?:earlier|previously|so far|last time|before|remind me|did (?:i|we))\b"
    r"|\bwhat(?: is|['’]s| was) my\b|\bwho am i\b|先前|早些|前面",
    re.I,
)
_SAME_FOR = re.compile(r"^(?:(?:and|so|ok|okay)[ ,]+)?(?:what|how) about\b|^and (?:in|for|at)\b|^那么?.{1,10}呢", re.I)

# deepagents' own tools: each is called only when the request spells out what it does.
_FILE = r"(?:[\w/-]+\.(?:md|txt|py|json|csv|ya?ml|toml|log|html?|js|ts|sh|cfg|ini|xml)\b|\bfiles?\b|文件)"
_BUILT_IN = {
    "ls": re.compile(r"\blist (?:all |the |my )*(?:files|director)|列出.*文件", re.I),
    "read_file": re.compile(rf"\b(?:read|open|show|print|cat)\b.*{_FILE}|[读看].*文件", re.I),
    "write_file": re.compile(rf"\b(?:write|save|create)\b.*{_FILE}|(?:写|保存|创建).*文件", re.I),
    "edit_file": re.compile(rf"\b(?:edit|replace|change)\b.*{_FILE}|修改.*文件", re.I),
    "delete": re.compile(rf"\b(?:delete|remove)\b.*{_FILE}|删除.*文件", re.I),
    "glob": re.compile(r"\bfind (?:all |the )*files? (?:matching|named|like)\b", re.I),
    "grep": re.compile(r"\bgrep (?:for|the)\b|\bsearch (?:in |through )?(?:all |the |my )*files for\b", re.I),
    "execute": re.compile(r"\b(?:run|execute) (?:the |this )?(?:shell )?command\b|执行命令", re.I),
    "task": re.compile(r"\bdelegate\b|\bsub-?agent\b|子代理|委托|交给", re.I),
    "write_todos": re.compile(r"\bto-?do list\b|待办", re.I),
    "compact_conversation": re.compile(r"\bcompact (?:the|this|our) conversation\b", re.I),
}
_OPENING = re.compile(r"(?:(?:in|for|at|of|near|from|to|the)\s+)*", re.I)
_FIGURE = re.compile(r"-?[0-9][0-9.,]*")
_DETAILS = re.compile(r"\W*(?:\b(?:in|for|on|at|with|by|to|today|tomorrow|too|please)\b.*|的.*)?", re.I | re.S)
_SUBAGENT = re.compile(r"^- ([\w.-]+):", re.M)


@dataclass(frozen=True)
class Tool:
    """A bound tool, as the model sees it: its name, its description, and the schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Any]

    @classmethod
    def of(cls, tool: dict[str, Any]) -> Tool:
        """Return the tool that this OpenAI-format description is about."""
        function = tool.get("function") or {}
        parameters = function.get("parameters") or {}
        return cls(function.get("name", ""), function.get("description") or "", parameters)

    @cached_property
    def name_terms(self) -> frozenset[str]:
        """What the name is about; of a name made of stop words alone, its words."""
        return frozenset(terms(self.name)) or frozenset(stem(word) for word in property_words(self.name))

    @cached_property
    def argument_terms(self) -> frozenset[str]:
        """What the names of the arguments are about."""
        return frozenset(term for name in self.schema.get("properties", {}) for term in terms(name))

    @cached_property
    def description_terms(self) -> frozenset[str]:
        """What the first sentence of the description adds to the name and the arguments."""
        first = sentences(self.description)[:1]
        return frozenset(terms("".join(first))) - self.name_terms - self.argument_terms

    @cached_property
    def action(self) -> str:
        """The stem of the description's first word, when it is not a stop word: what the tool does."""
        return "".join(terms(" ".join(self.description.split()[:1]))[:1])

    @property
    def is_built_in(self) -> bool:
        """Whether deepagents brings this tool."""
        return self.name in _BUILT_IN

    @cached_property
    def subagents(self) -> list[str]:
        """The sub-agents that the `task` tool says it can start."""
        return _SUBAGENT.findall(self.description) if self.name == "task" else []


@dataclass(frozen=True)
class PlannedCall:
    """A call the model will make."""

    name: str
    args: dict[str, Any]


def refers_back(text: str) -> bool:
    """Return whether the text speaks of what was said or found before."""
    return _BACK.search(text) is not None


def plan_calls(text: str, tools: Sequence[Tool], called: Sequence[str] = ()) -> list[PlannedCall]:
    """Return the calls that the request asks for; empty when it asks for no tool.

    What the request refuses ("no need to check the weather again") or refers back to ("the weather you
    just looked up") is not called, and arguments are not taken from there. A tool whose required figures
    or names the request leaves out is not called. "What about Paris?" asks for the newest of the tools
    `called` before that this fits.
    """
    kept, dropped = _without_refusals(text)
    refused = {term for part in dropped for term in terms(part)}
    if any(not terms(part) for part in dropped if _REFUSAL.search(part)):
        return []
    allowed = [tool for tool in tools if not tool.name_terms & refused]
    chosen = _built_in(kept, allowed) or _chosen(kept, [tool for tool in allowed if not tool.is_built_in])
    calls = _calls_of(chosen, kept)
    if calls or chosen or not _SAME_FOR.search(kept):
        return calls
    again = [tool for name in reversed(called) for tool in allowed if tool.name == name and not tool.is_built_in]
    return next((found for tool in again if (found := _calls_of([tool], kept))), [])


def _calls_of(chosen: Sequence[Tool], text: str) -> list[PlannedCall]:
    near = _shares(text, chosen)
    calls: list[PlannedCall] = []
    for tool in chosen:
        rest = _sentences_about(text, tool) if len(chosen) == 1 else ""
        source = Source(near[tool.name] or text, text, rest, tool.name_terms, _fixed(tool, text))
        found = [PlannedCall(tool.name, args) for args in spread(tool.schema, source)]
        calls += found if not source.invented or _names_tool(tool, text) else []
    return calls[:_AT_MOST]


def call_anyway(tool: Tool, text: str, facts: str = "") -> PlannedCall:
    """Return a call of a tool that has to be called, whatever the request says; facts come first."""
    return PlannedCall(tool.name, fill(tool.schema, Source(facts or text, text, fixed=_fixed(tool, text))))


def _without_refusals(text: str) -> tuple[str, list[str]]:
    dropped = [match[0] for match in _REFUSAL.finditer(text)]
    kept = _REFUSAL.sub(" ", text)
    for clause in clauses(kept):
        if _LOOKED_UP.search(clause):
            dropped.append(_LOOKED_UP.sub(" ", clause))
            kept = kept.replace(clause, " ")
    return kept.strip(), dropped


def _chosen(text: str, tools: Sequence[Tool]) -> list[Tool]:
    """Return the best tool for the words of the text, then the best for those that are left, and so on."""
    left = set(terms(text))
    chosen: list[Tool] = []
    candidates = list(tools)
    while candidates:
        best = max(candidates, key=lambda tool: _score(tool, left, text))
        if _score(best, left, text) < _THRESHOLD:
            break
        chosen.append(best)
        candidates.remove(best)
        left -= best.name_terms | best.description_terms
    return chosen


def _score(tool: Tool, words: set[str], text: str) -> float:
    named = tool.name_terms & words
    described = tool.description_terms & words
    score = sum(1.0 if term in _WEAK else 2.0 for term in named)
    score += 1.0 if named and named == tool.name_terms else 0.0
    score += 0.75 * len(described) + 0.5 * len((tool.argument_terms - tool.name_terms) & words)
    if described and 2 * len(described) >= len(tool.description_terms):
        score += 1.5
    if tool.action and any(terms(clause)[:1] == [tool.action] for clause in clauses(text)):
        score += 1.5 if tool.action in words else 0.0
    return score + (_NAMED if _names_tool(tool, text) else 0.0)


def _names_tool(tool: Tool, text: str) -> bool:
    name = re.escape(tool.name)
    if "_" in tool.name or "-" in tool.name:
        return re.search(rf"(?<![\w-]){name}(?![\w-])", text) is not None
    return re.search(rf"`{name}`|\b(?:use|call|run|with|via) (?:the )?{name}\b|\b{name} tool\b", text, re.I) is not None


def _built_in(text: str, tools: Sequence[Tool]) -> list[Tool]:
    """Return the one built-in tool that the text asks for; a tool of the user's that fits as well goes first."""
    words = set(terms(text))
    rivals = [tool for tool in tools if not tool.is_built_in and len(tool.name_terms) > 1 and tool.name_terms <= words]
    for tool in tools:
        if tool.is_built_in and (_names_tool(tool, text) or _subagent_named(tool, text)):
            return [tool]
    spelled_out = [tool for tool in tools if tool.is_built_in and _BUILT_IN[tool.name].search(text)]
    return [] if rivals else spelled_out[:1]


def _subagent_named(tool: Tool, text: str) -> str | None:
    for name in tool.subagents:
        spoken = re.escape(name).replace("_", "[ _-]").replace(r"\-", "[ _-]")
        if re.search(
            rf"\b(?:ask|use|let|have|tell|to|via|with|by) (?:the |my |our )?{spoken}\b|[让请]{spoken}", text, re.I
        ):
            return name
    return None


def _fixed(tool: Tool, text: str) -> dict[str, str]:
    """Return the arguments of built-in tools that only their description explains."""
    if tool.name != "task" or not tool.subagents:
        return {}
    spoken = [name for name in tool.subagents if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text, re.I)]
    chosen = _subagent_named(tool, text) or next(iter(spoken), tool.subagents[0])
    opening = rf"^.*?{re.escape(chosen)}(?: sub-?agent)?\W*(?:to\b|and\b)?\W*"
    return {"subagent_type": chosen, "description": re.sub(opening, "", text, count=1, flags=re.I | re.S) or text}


def _shares(text: str, chosen: Sequence[Tool]) -> dict[str, str]:
    """Return, for each tool, the clauses that ask for it, with those that only add a name or a figure."""
    shares: dict[str, list[str]] = {tool.name: [] for tool in chosen}
    owner: str | None = None
    waiting: list[str] = []
    for clause in clauses(text):
        words = set(terms(clause))
        about = [tool.name for tool in chosen if words & (tool.name_terms | tool.description_terms)]
        if about:
            for name in about:
                shares[name] += [*waiting, clause]
            owner, waiting = about[-1], []
        elif _only_adds(clause):
            (shares[owner] if owner else waiting).append(clause)
    return {name: ", ".join(parts) for name, parts in shares.items()}


def _only_adds(clause: str) -> bool:
    """Return whether the clause is a name or a figure with nothing but details: "Shanghai", "3 in Celsius"."""
    opening = _OPENING.match(clause)
    rest = clause[opening.end() :] if opening else clause
    figure = _FIGURE.match(rest)
    first = figure[0] if figure else next((name for name, _ in names(rest) if rest.startswith(name)), "")
    return bool(first) and _DETAILS.fullmatch(rest[len(first) :]) is not None


def _sentences_about(text: str, tool: Tool) -> str:
    about = [one for one in sentences(text) if set(terms(one)) & (tool.name_terms | tool.description_terms)]
    return " ".join(about) or text

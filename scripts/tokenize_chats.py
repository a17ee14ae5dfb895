# SPDX-License-Identifier: MIT
"""tokenize_chats - finds the text of a chat, and what of it the assistant says,
for scripts/tokenize.

A template with {% generation %} says it. Otherwise renderings are compared: a
turn begins behind the generation prompt, and ends with what the template writes
behind the last string of the turn. Marks in the strings find the places: they
are rendered with the text and must not change it."""

import json
import os
import re

from tokenize_input import fail
from tokenize_template import (FILLS, REASONING, Refused, Template, sources,
                               special_tokens)

# --- records ---

ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant",
         "bard": "assistant", "bing": "assistant", "model": "assistant",
         "observation": "tool", "function_response": "tool"}
MESSAGE_KEYS = {"role", "content", "from", "value", "tool_calls", "train",
                "weight", "tool_call_id", "name", *REASONING}


def turn(role, content):
    return {"role": role, "content": content}


def turns(role, said):
    """Returns messages. A text is one message of that role."""
    return said if isinstance(said, list) else [turn(role, said)]


def parsed(value, where, what, kind):
    """Returns a value that may also be given as JSON in a string."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else None
        except (ValueError, RecursionError) as error:
            fail(f"{where}: '{what}' is a string, but not JSON: {error}")
    if value is not None and not isinstance(value, kind):
        fail(f"{where}: '{what}' must be "
             f"{'a list' if kind is list else 'an object'}")
    return value


def from_sharegpt(message):
    """Returns a message of ShareGPT with the names of OpenAI."""
    role, value = message["from"], message.get("value")
    message = {k: v for k, v in message.items() if k not in ("from", "value")}
    if role == "function_call" and isinstance(value, str):
        try:
            call = json.loads(value)
        except (ValueError, RecursionError):
            call = None
        if isinstance(call, dict) and "name" in call:
            return {**message, "role": "assistant", "tool_calls": [
                {"type": "function", "function": call}]}
    if not isinstance(role, str):
        return {}
    role = "assistant" if role == "function_call" else ROLES.get(role, role)
    return {**message, **turn(role, value)}


def parts_of(content):
    """Returns a content that is a list as a list of objects."""
    return [{"type": "text", "text": part} if isinstance(part, str) else
            {"type": "text", **part} if "text" in part else part
            for part in content]


def read_message(message):
    """Returns a message with a role and content, or None. A call of a tool or
    a thought needs no content."""
    if not isinstance(message, dict):
        return None
    if "from" in message and "role" not in message:
        message = from_sharegpt(message)
    content = message.get("content")
    if isinstance(content, list):
        if not all(isinstance(part, (dict, str)) for part in content):
            return None
        message = {**message, "content": parts_of(content)}
    elif not isinstance(content, str):
        if content is not None or not any(map(message.get,
                                              ("tool_calls", *REASONING))):
            return None
    return message if isinstance(message.get("role"), str) else None


def read_messages(messages, where):
    read = list(map(read_message, messages)) if isinstance(messages, list) else []
    if not read or None in read:
        fail(f"{where}: messages must be objects with 'role' and 'content'")
    return read


def alpaca(record, where):
    """Returns the messages of a record of Alpaca. The history is a list of
    earlier pairs of instruction and output."""
    history = record.get("history") or []
    pairs = isinstance(history, list) and all(
        isinstance(pair, list) and len(pair) == 2 and
        all(isinstance(text, str) for text in pair) for pair in history)
    if not pairs:
        fail(f"{where}: 'history' must be a list of pairs of strings")
    asked = list(filter(None, [record.get("instruction"), record.get("input")]))
    if not all(isinstance(text, str) for text in asked):
        fail(f"{where}: 'instruction' and 'input' must be strings")
    messages = [turn(role, text) for pair in history
                for role, text in zip(("user", "assistant"), pair)]
    return messages + [turn("user", "\n\n".join(asked)),
                       turn("assistant", record["output"])]


class Record:
    """The messages of a record and what the template gets beside them. The
    field used has the keys that were read, the field strings tells if the
    record has texts instead of messages."""

    def __init__(self, record, where):
        record = record if isinstance(record, dict) else {}
        self.where, self.strings, self.prompt = where, False, 0
        name = next((key for key in ("messages", "conversations", "conversation")
                     if record.get(key)), None)
        if name:
            messages, self.used = record[name], {name}
        elif "completion" in record:
            self.used = {"prompt", "completion"}
            self.strings = isinstance(record["completion"], str)
            asked = turns("user", record.get("prompt"))
            self.prompt = len(asked)
            messages = asked + turns("assistant", record["completion"])
        elif "output" in record:
            self.used = {"instruction", "input", "output", "history"}
            self.strings = True
            messages = alpaca(record, where)
        else:
            fail(f"{where}: must be an object with 'messages', 'conversations',"
                 " 'prompt' and 'completion', or 'instruction' and 'output'")
        self.messages = read_messages(messages, where)
        self.read_rest(record)

    def read_rest(self, record):
        where = self.where
        system = record.get("system")
        if isinstance(system, str) and system and (
                self.messages[0]["role"] != "system"):
            self.messages = [turn("system", system)] + self.messages
            self.prompt += self.prompt > 0
        self.used |= {"tools", "system", "chat_template_kwargs"}
        self.tools = parsed(record.get("tools"), where, "tools", list) or None
        self.extra = parsed(record.get("chat_template_kwargs"), where,
                            "chat_template_kwargs", dict) or {}

    def note_keys(self, template, notes, record, used):
        """Notes keys of a record that nothing reads. Templates may read other
        keys of messages than MESSAGE_KEYS."""
        unused = set(record) - self.used - used
        for message in self.messages:
            unused |= {key for key in set(message) - MESSAGE_KEYS if not
                       re.search(rf"[.'\"]{re.escape(key)}\b", template.source)}
        notes.keys(unused)


def is_scored(message, where):
    """Tells if a message of the assistant counts. Weights are 0 and 1."""
    train, weight = message.get("train", True), message.get("weight", 1)
    if not isinstance(train, (bool, int)) or train not in (0, 1):
        fail(f"{where}: '{json.dumps(train)}': 'train' must be true or false")
    if weight is not None and weight not in (0, 1):
        fail(f"{where}: '{json.dumps(weight)}': a 'weight' must be 0 or 1: no"
             " objective takes weights of tokens")
    return bool(train) and weight != 0


# --- forms of messages ---


def is_text(content):
    return isinstance(content, list) and all(
        isinstance(part.get("text"), str) for part in content)


def content_for(template, message):
    """Returns the content of a message as the template takes it: a list of
    texts joined if it takes no list, and a text in a list if it takes only
    lists."""
    content = message.get("content")
    role = "assistant" if message["role"] == "assistant" else "user"
    string, as_list = (template.forms[role, form] for form in ("string", "list"))
    if is_text(content) and string and not as_list:
        return "".join(part["text"] for part in content)
    if isinstance(content, str) and as_list and not string:
        return [{"type": "text", "text": content}]
    return content


def call_for(template, call):
    """Returns a call of a tool whose arguments the template takes. JSON in a
    string becomes an object, if the template does not write the string."""
    inner = call.get("function") if isinstance(call, dict) else None
    if isinstance(inner, dict):
        return {**call, "function": call_for(template, inner)}
    if not isinstance(call, dict) or "arguments" not in call:
        return call
    arguments = call["arguments"]
    if isinstance(arguments, str):
        if template.takes_string_arguments:
            return call
        try:
            value = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return call
        return {**call, "arguments": value} if isinstance(value, dict) else call
    if template.takes_string_arguments and not template.takes_object_arguments:
        return {**call, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return call


def message_for(template, message):
    message = {k: v for k, v in message.items() if k not in ("train", "weight")}
    if "content" in message:
        message["content"] = content_for(template, message)
    if isinstance(message.get("tool_calls"), list):
        message["tool_calls"] = [call_for(template, call)
                                 for call in message["tool_calls"]]
    return message


# --- marks ---

FIRST, LAST = 0x17000, 0x187f7  # Tangut: printable, and without case


class Marks:
    """Marks around strings, of two characters each. fields has the field of
    the message that each string is in."""

    def __init__(self):
        self.fields = []

    def around(self, text, field):
        said = text.strip()
        n = len(self.fields)
        if not said or FIRST + 2 * n + 1 > LAST:
            return text
        self.fields.append(field)
        at = text.index(said)
        return (text[:at] + chr(FIRST + 2 * n) + said + chr(FIRST + 2 * n + 1) +
                text[at + len(said):])

    def value(self, value, field):
        if isinstance(value, str):
            return self.around(value, field)
        if isinstance(value, list):
            return [self.value(v, field) for v in value]
        if isinstance(value, dict):
            return {k: v if k in ("id", "type") else self.value(v, field)
                    for k, v in value.items()}
        return value

    def message(self, message, fields):
        """Returns a message with marks in these fields."""
        marked = dict(message)
        for field in fields:
            value = message.get(field)
            if field == "content" and isinstance(value, list):
                marked[field] = [
                    {**part, "text": self.around(part["text"], field)}
                    if isinstance(part.get("text"), str) else part
                    for part in value]
            elif value is not None:
                marked[field] = self.value(value, field)
        return marked


def unmarked(text):
    return "".join(c for c in text if not FIRST <= ord(c) <= LAST)


def places(text):
    """Returns where the first of each mark is in the text without marks."""
    found, at = {}, 0
    for c in text:
        if FIRST <= ord(c) <= LAST:
            found.setdefault(ord(c) - FIRST, at)
        else:
            at += 1
    return found


FIELDS = ("content", "tool_calls", *REASONING)
# Marks may change what a template does, so fewer are tried then.
VARIANTS = (FIELDS, ("content", "tool_calls"), ("content",), ("tool_calls",))


def fields_of(message):
    """Returns the fields of a message that say something."""
    marks = Marks()
    marks.message(message, FIELDS)
    return set(marks.fields)


# --- turns ---


def common(a, b):
    return len(os.path.commonprefix([a, b]))


def whole_tags(text, n):
    """Returns n, or less if the first n characters end inside a tag such as
    <think>: two tags may begin with the same characters."""
    at = max(text.rfind(c, 0, n) for c in "<[")
    inside = text[max(at, 0):n]
    if at >= 0 and len(inside) < 40 and not any(
            c in ">]" or c.isspace() for c in inside):
        return at
    return n


class Chat:
    """A chat through a template: its text, the ranges of it that are scored,
    and turns, the range of each message of the assistant."""

    def __init__(self, template, tokens, record, notes):
        self.template, self.tokens, self.where = template, tokens, record.where
        self.tools, self.extra = record.tools, record.extra
        self.notes = notes
        self.messages = [message_for(template, m) for m in record.messages]
        self.fill, self.text = self.first_rendering()
        self.spans = list(template.spans)
        # A prompt and a completion may both have turns of the assistant.
        said = [i for i, message in enumerate(self.messages)
                if message["role"] == "assistant"]
        scored = [i for i in said if i >= record.prompt and
                  is_scored(record.messages[i], self.where)]
        if template.scores:
            self.ranges = self.generated(set(said) - set(scored))
            self.note_unseen(said)
        else:
            self.ranges = [self.turn(i) for i in scored]

    def render(self, messages, prompt=False):
        return self.template.render(messages, prompt, self.tools, self.extra,
                                    self.fill)

    def first_rendering(self):
        """Returns the first of the forms of absent content that the template
        takes, and the text."""
        errors = []
        for self.fill in FILLS:
            try:
                return self.fill, self.render(self.messages)
            except Refused as error:
                errors.append(error)
                if all(m.get("content") is not None for m in self.messages):
                    break
        return fail(f"{self.where}: the chat template fails: {errors[-1]}")

    def generated(self, left_out):
        """Returns the ranges that {% generation %} encloses, without the turns
        in left_out."""
        ranges = []
        for start, text in self.spans:
            if self.text[start:start + len(text)] != text:
                fail(f"{self.where}: {{% generation %}} of the chat template is"
                     " in a macro or a variable, so its place is not certain")
            ranges.append((start, start + len(text)))
        for i in left_out:
            start, end = self.turn(i)
            ranges = [r for a, b in ranges
                      for r in ((a, min(b, start)), (max(a, end), b))
                      if r[0] < r[1]]
        return ranges

    def marked(self, i, field_sets=VARIANTS):
        """Returns messages with marks in message i that do not change the text,
        and where they are, or None."""
        for fields in field_sets:
            marks = Marks()
            message = marks.message(self.messages[i], fields)
            if not marks.fields:
                continue
            messages = self.messages[:i] + [message] + self.messages[i + 1:]
            try:
                text = self.render(messages)
            except Refused:
                continue
            at = places(text)
            if at and unmarked(text) == self.text:
                return messages, at, marks
        return None

    def refuse(self, i, why):
        return fail(f"{self.where}: message {i}: {why}, so the assistant's text"
                    " is not certain")

    def turn(self, i):
        """Returns the range of what the assistant says in message i."""
        found = self.marked(i)
        says = fields_of(self.messages[i])
        self.see(i, says, found)
        if found is None and says:
            return self.turn_by_prefix(i)
        first = min(found[1].values()) if found else None
        start = self.start(i, first)
        if start is None:
            return self.turn_by_prefix(i)
        end = self.end(i, start, found)
        if i + 1 < len(self.messages) and self.messages[i + 1]["role"] not in (
                "user", "assistant"):
            after = self.marked(i + 1, (("content",),))
            if after and min(after[1].values()) < end:
                self.refuse(i, f"the chat template puts message {i + 1} inside"
                            " it; give one with {% generation %}")
        return start, end

    def see(self, i, says, found):
        """Notes fields of a turn that the template does not render."""
        seen = {found[2].fields[mark // 2] for mark in found[1]} if found else (
            set())
        if says and not seen:
            return
        tried = set(found[2].fields) if found else set()
        unseen = tried - seen
        if seen & set(REASONING):
            unseen -= set(REASONING)
        for field in sorted(unseen):
            self.notes.add(f"turns of the assistant have '{field}' that the"
                           " chat template does not render")

    def start(self, i, first):
        """Returns where the turn of message i begins, behind the generation
        prompt. first is where the first of its strings is, or None."""
        try:
            before = self.render(self.messages[:i], True)
        except Refused:
            return first
        if self.template.has_prompt and self.text.startswith(before):
            return len(before)
        at, prompt = self.behind(i, before)
        if at is None:
            return first
        if self.template.has_prompt and not prompt:
            prompt = self.template.prompt
        if not self.template.has_prompt:
            prompt = self.header(i, first, at)
        n = common(prompt, self.text[at:])
        if n < len(prompt):
            n = whole_tags(prompt, n)
            if first is not None:
                n = min(n, first - at)
        return at + n

    def behind(self, i, before):
        """Returns where message i - 1 ends in the text, and what is behind it
        in before, the text of the messages up to it."""
        if i == 0:
            return 0, before
        if self.text.startswith(self.render_or_none(self.messages[:i])):
            n = len(self.render_or_none(self.messages[:i]))
            return n, before[n:]
        found = self.marked(i - 1, (("content",), FIELDS))
        if found is None:
            return None, ""
        messages, at, _ = found
        try:
            marked = self.render(messages[:i], True)
        except Refused:
            return None, ""
        there = places(marked)
        last = max(at, key=at.get)
        if unmarked(marked) != before or last not in there:
            return None, ""
        return at[last], before[there[last]:]

    def render_or_none(self, messages):
        try:
            return self.render(messages)
        except Refused:
            return "\0"

    def header(self, i, first, at):
        """Returns what a template without a generation prompt writes before
        content."""
        said = chr(FIRST)
        content = said
        if isinstance(self.messages[i].get("content"), list):
            content = [{"type": "text", "text": said}]
        text = self.render_or_none(self.messages[:i] +
                                   [turn("assistant", content)])
        head = text[:text.find(said)] if said in text else ""
        head = head[at:] if head[:at] == self.text[:at] else ""
        return head if head.strip() else ""

    def end(self, i, start, found):
        """Returns where the turn of message i ends, behind the token that ends
        it."""
        if i == len(self.messages) - 1:
            at = max(found[1].values()) if found else start
            closing = self.text[at:]
        else:
            at, closing = self.closing(i, start, found)
        n = common(closing, self.text[at:])
        if n < len(closing):
            n = whole_tags(closing, n)
        taken = self.text[at:at + n]
        open_ended = not self.template.closes or (
            n < len(closing) and not taken.strip())
        if open_ended:  # The next message begins with the end token.
            after = [token for token in self.tokens
                     if self.text.startswith(token, at + n)]
            if after:
                return at + n + max(map(len, after))
        return at + (len(taken.rstrip()) or n)

    def closing(self, i, start, found):
        """Returns where the last string of message i ends that is also in the
        text which ends with message i, and what that text has behind it."""
        messages = found[0] if found else self.messages
        try:
            upto = self.render(messages[:i + 1])
        except Refused as error:
            self.refuse(i, f"the chat template fails without the messages that"
                        f" follow: {error}")
        if not found:
            if common(unmarked(upto), self.text) < start:
                self.refuse(i, "the chat template changes earlier turns when"
                            " more follow")
            return start, upto[start:]
        there = places(upto)
        for mark in sorted(found[1], key=found[1].get, reverse=True):
            if mark in there:
                return found[1][mark], unmarked(upto)[there[mark]:]
        return self.refuse(i, "the chat template renders other parts of it when"
                           " more follow")

    def turn_by_prefix(self, i):
        """Returns the range of a turn that takes no marks, if no text before it
        changes when more messages follow."""
        try:
            before = self.render(self.messages[:i], True)
            upto = self.render(self.messages[:i + 1])
        except Refused as error:
            self.refuse(i, f"the chat template fails without the messages that"
                        f" follow: {error}")
        if fields_of(self.messages[i]) and not self.renders(i, upto):
            self.refuse(i, "the chat template renders nothing of it")
        start = common(before, self.text)
        end = common(upto, self.text)
        if start < len(before):
            start = whole_tags(before, start)
        if end < len(upto) or end <= start or (
                start < common(before, upto) and start < len(before)):
            self.refuse(i, "the chat template changes earlier turns when more"
                        " follow")
        taken = self.text[start:end]
        return start, start + (len(taken.rstrip()) or len(taken))

    def renders(self, i, upto):
        """Tells if a text has anything of message i."""
        empty = {k: v for k, v in self.messages[i].items() if k not in FIELDS}
        try:
            return self.render(self.messages[:i] + [empty]) != upto
        except Refused:
            return True

    def note_unseen(self, said):
        """Notes what a template with {% generation %} does not render."""
        for i in said:
            says = fields_of(self.messages[i])
            if says - {"content"}:
                self.see(i, says, self.marked(i))


def scored(offsets, ranges):
    """Returns the mask of tokens, which are scored if they have any character
    of a range, and tells if one has others before it."""
    mask, straddles = [], False
    left = list(ranges)
    for a, b in offsets:
        while left and a >= left[0][1]:
            left.pop(0)
        yes = bool(left) and b > left[0][0]
        mask.append(int(yes))
        straddles |= yes and a < left[0][0]
    return mask, straddles


class Templates:
    """The chat templates of a model, each loaded if a record needs it."""

    def __init__(self, model, file):
        self.model, self.file = model, file
        self.loaded, self.sources = {}, None

    def found(self):
        """Returns the sources of the templates by name."""
        if self.sources is None:
            self.sources = sources(self.model, self.file)
        return self.sources

    def __call__(self, tools):
        self.found()
        name = "tool_use" if tools and "tool_use" in self.sources else "default"
        if name not in self.sources:
            path = os.path.join(self.model, "tokenizer_config.json")
            fail(f"{path}: no 'chat_template'; --chat-template names a file"
                 " with one")
        if name not in self.loaded:
            self.loaded[name] = Template(*self.sources[name],
                                         special_tokens(self.model))
        return self.loaded[name]


# --- preference pairs ---

SIDES = ("chosen", "rejected")


def shared_messages(chosen, rejected):
    """Returns the number of messages that both sides begin with."""
    n = 0
    while n < min(len(chosen), len(rejected)) - 1 and chosen[n] == rejected[n]:
        n += 1
    return n

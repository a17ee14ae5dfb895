# SPDX-License-Identifier: MIT
"""tokenize_template - renders the chat template of a model for scripts/tokenize
as transformers does, and finds out which forms of messages it takes."""

import datetime
import functools
import json
import os

from tokenize_input import fail, need, read_json

TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
          "cls_token", "mask_token")
REASONING = ("reasoning_content", "thinking", "reasoning")


def special_tokens(model):
    """Returns the texts of a model's special tokens by name: in the files each
    is a string or an object."""
    config = {**read_json(os.path.join(model, "special_tokens_map.json")),
              **read_json(os.path.join(model, "tokenizer_config.json"))}
    tokens = {name: config.get(name) for name in TOKENS}
    tokens = {name: token.get("content") if isinstance(token, dict) else token
              for name, token in tokens.items()}
    return {name: token for name, token in tokens.items()
            if isinstance(token, str)}


def read_text(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path}: {getattr(error, 'strerror', None) or error}")


def sources(model, file):
    """Returns the path and the text of a model's templates by name."""
    if file:
        return {"default": (file, read_text(file))}
    path = os.path.join(model, "chat_template.jinja")
    if os.path.isfile(path):
        return {"default": (path, read_text(path))}
    for name in ("tokenizer_config.json", "chat_template.json"):
        path = os.path.join(model, name)
        source = read_json(path).get("chat_template")
        if isinstance(source, list):  # Several templates, by name.
            source = {t.get("name"): t.get("template") for t in source
                      if isinstance(t, dict)}
        elif source is not None:
            source = {"default": source}
        if source is not None:
            if not all(isinstance(text, str) for text in source.values()):
                fail(f"{path}: 'chat_template' must be a string")
            if "default" in source:
                return {name: (path, text) for name, text in source.items()}
    return {}


class ABSENT:
    """The content of a message that has no such key."""


FILLS = (ABSENT, None, "")
MARK = "\U00017000"  # printable, without case, and in no text


def written(text):
    """Tells if a template wrote a list as Python or JSON does."""
    return "'type': 'text'" in text or '"type": "text"' in text


class Refused(Exception):
    """The template raised an error."""


class Template:
    """One template of a model. A message without content has the content that
    the field fill says: ABSENT, None or an empty string."""

    def __init__(self, path, source, tokens):
        self.jinja2, self.source = need("jinja2"), source
        self.tokens = {**dict.fromkeys(TOKENS[:3] + TOKENS[4:5], ""), **tokens}
        self.now = datetime.datetime.now()
        self.spans, self.length = [], 0
        try:
            self.template = self.environment().from_string(source)
        except self.jinja2.TemplateError as error:
            fail(f"{path}: chat_template: {error}")
        self.scores = self.tag_found

    def environment(self):
        """Returns the environment that transformers gives to templates."""
        sandbox = __import__("jinja2.sandbox").sandbox
        made = sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", self.generation_tag()])

        def tojson(value, ensure_ascii=False, indent=None, separators=None,
                   sort_keys=False):
            return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent,
                              separators=separators, sort_keys=sort_keys)

        def raise_exception(message):
            raise self.jinja2.TemplateError(message)

        made.filters["tojson"] = tojson
        made.globals["raise_exception"] = raise_exception
        made.globals["strftime_now"] = lambda form: self.now.strftime(form)
        return made

    def generation_tag(self):
        """Returns the extension for {% generation %}, which notes the places of
        its text."""
        jinja2, template = self.jinja2, self
        ext = __import__("jinja2.ext").ext
        self.tag_found = False

        class Generation(ext.Extension):
            tags = {"generation"}

            def parse(self, parser):
                template.tag_found = True
                line = next(parser.stream).lineno
                body = parser.parse_statements(["name:endgeneration"],
                                               drop_needle=True)
                call = self.call_method("note")
                return jinja2.nodes.CallBlock(call, [], [],
                                              body).set_lineno(line)

            def note(self, caller):
                text = caller()
                template.spans.append((template.length, text))
                return text

        return Generation

    def render(self, messages, prompt=False, tools=None, extra=None, fill=ABSENT):
        """Returns the text of messages. Keys that are null are left out, and
        reasoning has each name that templates give it, as transformers does.
        The field spans has what {% generation %} encloses."""
        given = []
        for message in messages:
            message = {k: v for k, v in message.items() if v is not None}
            if "content" not in message and fill is not ABSENT:
                message["content"] = fill
            thought = next(filter(None, map(message.get, REASONING)), None)
            if thought is not None:
                message = {"thinking": thought, **message,
                           "reasoning_content": thought}
            given.append(message)
        variables = {**self.tokens, "tools": tools, "documents": None,
                     **(extra or {}), "messages": given,
                     "add_generation_prompt": prompt}
        self.spans, self.length, blocks = [], 0, []
        try:
            for block in self.template.generate(**variables):
                blocks.append(block)
                self.length += len(block)
        except Exception as error:  # Templates can raise anything.
            raise Refused(str(error)) from error
        return "".join(blocks)

    def tried(self, *args, **kwargs):
        """Returns what render returns, or an empty text if it is refused."""
        try:
            return self.render(*args, **kwargs)
        except Refused:
            return ""

    # What follows is found once for a template, by rendering short chats.

    def takes(self, role, form):
        """Tells if the content of a role may be a string or a list."""
        for other in ("string", "list"):
            forms = {role: form, ("user" if role == "assistant" else
                                  "assistant"): other}
            text = self.tried([
                {"role": name, "content": MARK if forms[name] == "string" else
                 [{"type": "text", "text": MARK}]}
                for name in ("user", "assistant")])
            if text.count(MARK) == 2 and not written(text):
                return True
        return False

    @functools.cached_property
    def forms(self):
        return {(role, form): self.takes(role, form)
                for role in ("user", "assistant")
                for form in ("string", "list")}

    def with_call(self, arguments):
        call = {"id": "abcdefghi", "type": "function",
                "function": {"name": "name", "arguments": arguments}}
        chat = [{"role": "user", "content": "a"},
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "content": "b", "name": "name",
                 "tool_call_id": "abcdefghi"},
                {"role": "assistant", "content": "c"}]
        return [self.tried(chat, fill=fill) for fill in FILLS]

    @functools.cached_property
    def takes_string_arguments(self):
        """Tells if arguments that are JSON in a string stay as they are."""
        string = '{"k": "%s"}' % MARK
        return any(string in text for text in self.with_call(string))

    @functools.cached_property
    def takes_object_arguments(self):
        return any(MARK in text for text in self.with_call({"k": MARK}))

    @functools.cached_property
    def prompts(self):
        """Returns the text of a message without the generation prompt, and with
        it."""
        chat = [{"role": "user", "content": "a"}]
        if self.forms["user", "list"] and not self.forms["user", "string"]:
            chat[0]["content"] = [{"type": "text", "text": "a"}]
        return self.tried(chat, False), self.tried(chat, True)

    @property
    def has_prompt(self):
        return self.prompts[0] != self.prompts[1]

    @property
    def prompt(self):
        """The generation prompt, or an empty text if it is not certain."""
        without, with_prompt = self.prompts
        return (with_prompt[len(without):] if with_prompt.startswith(without)
                else "")

    @functools.cached_property
    def closes(self):
        """Tells if the template ends a last turn with more than white space."""
        for content in MARK, [{"type": "text", "text": MARK}]:
            text = self.tried([
                {"role": "user", "content": "a" if content == MARK else
                 [{"type": "text", "text": "a"}]},
                {"role": "assistant", "content": content}])
            if MARK in text and not written(text):
                return bool(text.rpartition(MARK)[2].strip())
        return True



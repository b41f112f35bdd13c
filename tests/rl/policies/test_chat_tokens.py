"""Control tokens that a text spells stay text; every other text has the ids of the tokenizer's own chat template."""

from __future__ import annotations

import re
from unicodedata import normalize

import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_fixtures import fresh_policy
from tokenizers import Regex, pre_tokenizers
from transformers import AddedToken
from transformers import PreTrainedTokenizerBase as Tokenizer

from crbc_envs.chat import messages
from crbc_envs.prompts import Prompt
from crbc_rl.errors import ConfigError
from crbc_rl.policies.chat_tokens import TAGS, ChatTokens
from crbc_rl.policies.transformers import TransformersPolicy

QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}<tools>{{ tools | tojson }}</tools> <tool_call></tool_call>{{- '<|im_end|>\\n' }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
"""The branches of the paper's models' chat templates that a chat of ours takes."""
TRIMS = (
    "{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "| trim + '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}"
)
"""A template that changes what it is given, as those of other families do."""
CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|fim_prefix|>", "<tool_call>", "</tool_call>"]
MARK, MEANT = "<image>", "<|vision_start|><|image_pad|><|vision_end|>"


def tokenizer_of(template: str = QWEN) -> Tokenizer:
    tokenizer = fresh_policy().tokenizer
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in CONTROL if token.startswith("<|fim")])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in ("<tool_call>", "</tool_call>", "  ")])
    tokenizer.add_tokens(re.findall(r"<.+?>", MEANT), special_tokens=True)
    tokenizer.chat_template = template
    return tokenizer


QWEN_LIKE, TRIMMING = tokenizer_of(), tokenizer_of(TRIMS)
CHATS = {id(tokenizer): ChatTokens(tokenizer) for tokenizer in (QWEN_LIKE, TRIMMING)}
PLAIN = st.text(st.characters(exclude_characters="<", codec="utf-8"), max_size=60)
TAGGED = st.lists(st.one_of(PLAIN, st.sampled_from([*TAGS, "<", "|>", "  ", "\n", "im_end", "<b>"])), max_size=6).map(
    "".join
)
SPELLED = st.lists(st.one_of(PLAIN, st.sampled_from([*CONTROL, "<|im_", "end|>", "<", "\ue000"])), max_size=8).map(
    "".join
)


@settings(max_examples=effort(80, full=200), deadline=None)
@given(TAGGED.filter(lambda text: not any(token in text for token in CONTROL)), st.none() | PLAIN)
@pytest.mark.parametrize("tokenizer", [QWEN_LIKE, TRIMMING], ids=["qwen", "trims"])
def test_honest_chats_have_the_ids_of_the_chat_template(tokenizer: Tokenizer, text: str, system: str | None) -> None:
    chat = messages(Prompt(text, system=system))
    plain = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert CHATS[id(tokenizer)].encode(text, system) == plain


@settings(max_examples=200, deadline=None)
@given(SPELLED, st.none() | SPELLED)
def test_a_spelled_control_token_stays_text(text: str, system: str | None) -> None:
    chat = CHATS[id(QWEN_LIKE)]
    ids = chat.encode(text, system)
    control = {QWEN_LIKE.convert_tokens_to_ids(token) for token in CONTROL}
    of_the_template = [i for i in chat.encode("Go.", None if system is None else "Play.") if i in control]
    assert [i for i in ids if i in control] == of_the_template
    before = "You are a helpful assistant." if system is None else system
    told = f"<|im_start|>system\n{before}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    assert normalize("NFC", QWEN_LIKE.decode(ids)) == normalize("NFC", told)  # as the tokenizer's normalizer does


def test_a_control_token_spelled_otherwise_stays_text() -> None:
    """The Kelvin sign is another letter K, until the tokenizer normalizes it."""
    tokenizer = tokenizer_of()
    tokenizer.add_tokens([AddedToken("<|K|>", normalized=True)])
    ids = ChatTokens(tokenizer).encode("a <|\u212a|> b", None)
    assert tokenizer.convert_tokens_to_ids("<|K|>") in tokenizer.encode("<|\u212a|>")
    assert tokenizer.convert_tokens_to_ids("<|K|>") not in ids
    assert "\na <|K|> b<|im_end|>" in tokenizer.decode(ids)


def test_a_frame_has_its_tokens_and_a_text_does_not() -> None:
    chat = ChatTokens(QWEN_LIKE, MARK, MEANT)
    meant = [QWEN_LIKE.convert_tokens_to_ids(token) for token in re.findall(r"<.+?>", MEANT)]
    shown = chat.encode(f"You see {MARK}. Move <|image_pad|>!<|im_end|>", None, places=1)
    assert [i for i in shown if i in meant] == meant
    assert not set(chat.encode(f"You see {MARK}.", None)) & set(meant)
    honest = chat.encode(f"You see {MARK}.", None, places=1)
    plain = QWEN_LIKE.apply_chat_template(
        messages(Prompt(f"You see {MEANT}.")), add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert honest == plain


def test_a_template_that_names_the_date_says_the_same_tomorrow() -> None:
    """As Llama's does. A run that goes on then would have other prompts."""
    policy = fresh_policy()
    policy.tokenizer.chat_template = (
        "{% set today = date_string if date_string is defined else strftime_now('%d %b %Y') %}"
        "<|im_start|>{{ today }}\n{{ messages[-1]['content'] }}<|im_end|>\n"
    )
    ids = ChatTokens(policy.tokenizer).encode("Go.")
    assert policy.tokenizer.decode(ids) == "<|im_start|>26 Jul 2024\nGo.<|im_end|>"


def test_a_template_that_cannot_be_read_or_fails_is_named() -> None:
    for template in ("{% for %}", "{{ 1 / 0 }}", "{{ messages.__class__.__mro__[1].__subclasses__() }}"):
        with pytest.raises(ConfigError, match="the model's chat template fails"):
            ChatTokens(tokenizer_of(template)).encode("Go.", None)


def test_a_tokenizer_that_backtracks_without_end_is_named() -> None:
    tokenizer = tokenizer_of()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(#+)+$"), "isolated")
    with pytest.raises(ConfigError, match="the model's tokenizer fails: .*retry"):
        ChatTokens(tokenizer).encode("#" * 40 + "!", None)


# ---- the end of a turn ----------------------------------------------------------------------------

TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}BEHIND\n{% endfor %}"
ENDS = {
    "<|im_end|>": "<|im_end|>",
    " <|endoftext|>": "<|endoftext|>",
    "<|fim_prefix|><|im_end|>": "<|fim_prefix|>",
    "": None,
    "\nnext": None,
}


@pytest.mark.parametrize("behind", ENDS)
def test_a_turn_ends_as_the_template_ends_it_and_not_always_with_eos(behind: str) -> None:
    tokenizer = tokenizer_of(TURNS.replace("BEHIND", behind))
    wanted = ENDS[behind] and tokenizer.convert_tokens_to_ids(ENDS[behind])
    assert ChatTokens(tokenizer).end() == wanted
    model = fresh_policy().model
    model.resize_token_embeddings(len(tokenizer))
    assert TransformersPolicy(model, tokenizer).eos == (tokenizer.eos_token_id if wanted is None else wanted)


@pytest.mark.parametrize("template", [QWEN, "{{ raise_exception('no assistant') }}", "{{ nothing.at.all }}"])
def test_a_template_without_an_assistant_leaves_eos(template: str) -> None:
    assert ChatTokens(tokenizer_of(template)).end() is None

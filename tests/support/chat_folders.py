"""Tokenizer folders with chat templates, made on the spot, and chats to write with them."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as HuggingFaceTokenizer

from tacit.data.tokenizer import NOTHING, train_bpe

SENTENCES = ["user: Hello, where is my order?", "assistant: Hello! It is on its way to you.", "Thank you."] * 3
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TRIMMING = (
    "{{ bos_token }}{%- for message in messages %}\n"
    "    {%- if message.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\n"
    "    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}\n"
    "        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}\n"
    "    {%- endif %}\n"
    "    {{- '<turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}\n"
    "    {%- generation %}{{- message.content | trim }}{{- '<|im_end|>' }}{% endgeneration %}\n"
    "    {{- '\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ '<turn>model\n' }}{% endif %}\n"
)
REORDERING = "{% for message in messages | reverse %}{{ message.content }}<|im_end|>{% endfor %}"
SHOUTING = "{% for message in messages %}{{ message.content | replace('please', 'PLEASE') }}<|im_end|>{% endfor %}"
_SPECIAL = ("<s>", "<turn>", "<|im_start|>", "<|im_end|>", "<unused>")
_NAMED = {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}


def write_tokenizer(folder: Path, template: str | None = CHATML, *, beside: bool = True) -> Path:
    """A byte-level BPE with special tokens; its template in a file `beside` the settings, or in them."""
    folder.mkdir(exist_ok=True)
    content = train_bpe(SENTENCES, 300, NOTHING).codec.definition()["content"]
    bpe = HuggingFaceTokenizer.from_str(json.dumps(content))
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIAL])
    (folder / "tokenizer.json").write_text(bpe.to_str())
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **_NAMED}
    if template is not None and beside:
        (folder / "chat_template.jinja").write_text(template)
    elif template is not None:
        settings["chat_template"] = [{"name": "default", "template": template}]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def write_llama(folder: Path, template: str | None = CHATML) -> Path:
    """A tiny random Llama with that tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = LlamaConfig(vocab_size=320, max_position_embeddings=1024, eos_token_id=303, bos_token_id=300, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder)  # type: ignore[no-untyped-call]
    return write_tokenizer(folder, template)


def chat(*turns: tuple[str, str], **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """A row with messages of these roles and contents."""
    return {"messages": [{"role": role, "content": content} for role, content in turns], **more}

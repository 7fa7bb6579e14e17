"""Answer a prompt with a released model. It needs transformers and, for adapters, PEFT; not tacit.

    python examples/answer.py RUN/release "Where is my parcel?" [--base FOLDER] [--tokens 60]

A release of adapters names its base model; `--base` says where that is on this machine.
"""

import argparse
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer


def load(release: Path, base: str | None) -> Any:  # noqa: ANN401  (a model of transformers or of PEFT)
    """The released model: whole, or adapters on their base."""
    if not (release / "adapter_config.json").exists():
        return AutoModelForCausalLM.from_pretrained(release)
    from peft import AutoPeftModelForCausalLM, PeftModel

    if base is None:
        return AutoPeftModelForCausalLM.from_pretrained(release)
    return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), release)


def answer(release: Path, base: str | None, prompt: str, tokens: int) -> str:
    """What the model says: to a user's message if it knows chats, else after the prompt."""
    model, tokenizer = load(release, base).eval(), AutoTokenizer.from_pretrained(release)
    if tokenizer.chat_template:
        messages = [{"role": "user", "content": prompt}]
        read = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
    else:
        read = tokenizer(prompt, return_tensors="pt")
    said = model.generate(**read, max_new_tokens=tokens, do_sample=False)
    text: str = tokenizer.decode(said[0, read["input_ids"].shape[1] :], skip_special_tokens=True)
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Answer a prompt with a released model.")
    parser.add_argument("release", type=Path)
    parser.add_argument("prompt")
    parser.add_argument("--base")
    parser.add_argument("--tokens", type=int, default=60)
    given = parser.parse_args()
    print(answer(given.release, given.base, given.prompt, given.tokens))

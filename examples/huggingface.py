"""Your own loop around a model of Hugging Face: PEFT adapters, a dataset, a scheduler, and private steps.

    python examples/huggingface.py [MODEL]

MODEL is a local folder with a causal language model and its tokenizer; without one, a tiny Llama is made on the spot.
Records come as a `datasets.Dataset` if that library is installed, else as a list of dictionaries: both work.
"""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    PreTrainedTokenizerFast,
    get_cosine_schedule_with_warmup,
)

import tacit
from tacit.api import simulate
from tacit.data.corpus import read

LONGEST = 128


def tiny(folder: Path) -> None:
    """A Llama with fresh weights that reads bytes, saved as any other model."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_alone = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bytes_alone.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytes_alone, eos_token="</s>", mask_token="<mask>")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LONGEST,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def records(folder: Path) -> Any:  # noqa: ANN401  (a dataset or a list)
    """Simulated dialogs, one per person."""
    simulate("customersim", dialogs=200, out=folder / "corpus.jsonl")
    found = [{"text": record.text} for record in read(folder / "corpus.jsonl")]
    if find_spec("datasets") is None:
        return found
    from datasets import Dataset  # type: ignore[import-not-found,unused-ignore]

    return Dataset.from_list(found)


def main(model_folder: Path, folder: Path) -> None:
    """Train adapters, save them, and load them as anybody would, without tacit."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(model_folder),
        LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)  # frozen parameters may be in it

    def encode(record: dict[str, str]) -> list[int]:
        ids = tokenizer(record["text"], truncation=True, max_length=LONGEST - 1)["input_ids"]
        return [*ids, tokenizer.eos_token_id]

    with tacit.PrivateStep(
        model,
        optimizer,
        records(folder),
        tokenizer=encode,
        ledger=folder / "ledger.jsonl",
        epsilon=8,
        epochs=2,
        expected_batch_size=50,
    ) as private:
        schedule = get_cosine_schedule_with_warmup(optimizer, private.steps // 10, private.steps)
        for _ in range(private.steps):
            private.step()
            schedule.step()
    model.save_pretrained(folder / "adapters")
    print(f"{private.done} private steps moved {model.num_parameters(only_trainable=True):,} parameters")
    print(private.guarantee().sentence())

    again = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_folder), folder / "adapters").eval()
    prompt = tokenizer("SYS: Hello", return_tensors="pt")
    said = again.generate(**prompt, max_new_tokens=20, do_sample=False, pad_token_id=tokenizer.eos_token_id)
    print("adapters:", ", ".join(sorted(path.name for path in (folder / "adapters").glob("adapter*"))))
    print("it says:", repr(tokenizer.decode(said[0])))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        if len(sys.argv) == 1:
            tiny(Path(temporary) / "model")
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary) / "model", Path(temporary))

"""Release folders as others load them: in a process where tacit cannot be imported."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

_SCRIPT = """
import importlib.abc, json, pathlib, sys


class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "tacit":
            raise ModuleNotFoundError("tacit is not installed here")


sys.meta_path.insert(0, Blocked())
try:
    import tacit
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("the negative control: tacit could be imported")

import torch, transformers
from peft import AutoPeftModelForCausalLM, PeftModel
from safetensors.torch import save_file

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
KINDS = {"causal": transformers.AutoModelForCausalLM, "classifier": transformers.AutoModelForSequenceClassification}
tensors, told = {}, {}
for name, case in json.loads(pathlib.Path(sys.argv[1]).read_text()).items():
    release, base, labels = case["release"], case.get("base"), case.get("labels")
    kind = KINDS[case.get("kind", "causal")]
    if base is None:
        model = kind.from_pretrained(release)
    elif case.get("by_name"):
        model = AutoPeftModelForCausalLM.from_pretrained(release)
    else:
        words = {} if labels is None else {"num_labels": labels}
        model = PeftModel.from_pretrained(kind.from_pretrained(base, **words), release)
    tokens = torch.tensor(case["tokens"])
    with torch.no_grad():
        tensors[name] = model.eval()(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits.contiguous()
    if case.get("texts"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(release)
        bare = [tokenizer(text, add_special_tokens=False).input_ids for text in case["texts"]]
        told[name] = {
            "ids": bare,
            "framed": [tokenizer(text).input_ids for text in case["texts"]],
            "special": [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.mask_token_id],
            "decoded": [tokenizer.decode(ids) for ids in bare],
            "template": tokenizer.chat_template,
            "eos": getattr(getattr(model, "generation_config", None), "eos_token_id", None),
        }
save_file(tensors, sys.argv[1] + ".safetensors")
print(json.dumps(told))
"""


def loaded_without_tacit(
    cases: dict[str, dict[str, Any]], place: Path, at: Path | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The logits of each case, and what its tokenizer gives. at: where the process is, to find models by name."""
    file = place / "cases.json"
    file.write_text(json.dumps(cases, default=str), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SCRIPT, str(file)],
        capture_output=True,
        text=True,
        cwd=at or place,
        env={**environment, "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return load_file(f"{file}.safetensors"), json.loads(done.stdout.splitlines()[-1])

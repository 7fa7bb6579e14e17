"""The one release before the first step: noisy counts of the form of secrets (theory, section 12).

G1 (before). The release is charged, on the disk, before it is computed. One that a crash lost stays charged.
G2 (once). What was released is kept, and a resumed run takes it: a second sum is drawn only with a second charge.
"""

from random import Random

from tacit.data.form_counts import count_forms
from tacit.data.forms import Forms, learn
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Tokenizer
from tacit.privacy.plan import Noisy, Plan
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.runs.verify import note_stores


def release_forms(run: RunFolder, plan: Plan, store: PreparedCorpus, tokenizer: Tokenizer, rng: Random) -> Forms | None:
    """What the run has learned of the form of secrets; None where its plan counts none."""
    if plan.forms is None or not isinstance(plan.forms.update, Noisy):
        return None
    if not run.path(PrivateFile.FORMS).exists():
        noise = plan.forms.update.noise_multiplier
        run.ledger.charge(plan.forms.name)
        sums, contexts = count_forms(store, tokenizer, noise)
        run.write_json(PrivateFile.FORMS, learn(sums, contexts, noise, rng))
        note_stores(run)
    return run.read_json(Forms, PrivateFile.FORMS)

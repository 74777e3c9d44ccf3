"""A site's gate: applies the rules of its `site.toml` to every request and every answer, and writes the record.

Every request passes the gate before anything is computed, every answer before it leaves. What is refused, and
why, is written to the site's record. The coordinator gets a number that stands for the reason, and nothing of
the site beyond what `site.toml` itself says.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from fedrel.deployment.answered import (
    UNNAMED,
    Answered,
    LastAnswers,
    PrivacyBudget,
    answer_cost,
    number,
    question,
)
from fedrel.deployment.artefacts import agreed_part, differences
from fedrel.deployment.audit import Asked, append, describe
from fedrel.deployment.earned_weights import (
    EarnedWeights,
    Fingerprint,
    UnearnedError,
    check_initial,
    fingerprint,
)
from fedrel.deployment.folders import SiteFolder
from fedrel.deployment.keys import signature
from fedrel.deployment.policy import (
    REFUSAL,
    kinds_of_message,
    not_counted,
    not_private,
    read_policy,
    refused_parts,
    too_fine,
)
from fedrel.deployment.record_check import check_whole
from fedrel.federation.earned import Earned, vouch
from fedrel.federation.flower.host import Refusal, RefusalCode
from fedrel.federation.messages import HOLDINGS, Model, ModelTensors, RefusedError, Update
from fedrel.federation.predictions import BytePredictions, Predictions
from fedrel.federation.secure_messages import (
    MaskedNumbers,
    PublicKeys,
    SealedShares,
    SignedLists,
    Unmasking,
)
from fedrel.federation.site import Site
from fedrel.federation.summands import LEAST
from fedrel.files import locked_in_turn
from fedrel.methods.fedavg import FedAvg
from fedrel.methods.summed_predictions import SummedPredictions
from fedrel.privacy.differential_privacy import longest_noise
from fedrel.privacy.vouching import OwnUpdates, ShownLists, Vouching
from fedrel.tensors.weights import dense

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedrel.federation.flower.host import Request
    from fedrel.federation.messages import Arrays
    from fedrel.federation.runner import Runner
    from fedrel.tensors.weights import Tensors, Weights


class SiteGate:
    """Decides for a site by its `site.toml` and by what it was prepared with, and writes its record.

    One request after the other: `allow`, `receive`, then `record` or `refuse`.
    """

    def __init__(self, folder: SiteFolder) -> None:
        self._folder = folder
        policy = read_policy(folder.path)
        self._allow, self._privacy = policy.allow, policy.privacy
        self._policy = policy.model_dump(mode="json", include={"allow", "privacy"})
        self._answered, self._budget = Answered(folder.answered), PrivacyBudget(folder.privacy)
        self._asked, self._kinds = Asked(), kinds_of_message()
        self._weights: Weights = {}
        self.chain: bytes | None = None
        self.vouch: bytes | None = None

    def allow(self, request: Request) -> Refusal | None:
        """Why a request is refused before anything is computed for it, or None."""
        for rule in (self._agreement, self._method, self._protection, self._message, self._limits):
            if found := rule(request):
                refusal, note = found
                return self.refuse(request, refusal, note)
        return None

    def receive(self, request: Request, arrays: Arrays, runner: Runner) -> Refusal | None:
        """Why what came with a request, and earlier in its round, is not used; None if it is."""
        weights = {
            name.removeprefix(_MODEL): array for name, array in arrays.items() if name.startswith(_MODEL)
        }
        rest = {name: array for name, array in arrays.items() if not name.startswith(_MODEL)}
        self._weights, known = weights, fingerprint(weights) if weights else None
        sha256, norms = (known.sha256, known.norms) if known else ("", {})
        self._asked = Asked(question(request, rest, sha256), sha256, norms)
        if self._is_repeated(request):
            refusal = Refusal(RefusalCode.REPEATS, self._allow.repeats)
            return self.refuse(
                request, refusal, "another question of the same kind was answered in this round"
            )
        if self.earlier_answer(request) is None and (over := self._over_budget(request, runner)):
            return over
        if request.round == 1 and any(
            array.any() for name, array in rest.items() if name.startswith(_CONTROL)
        ):
            return self.refuse(request, Refusal(RefusalCode.INITIAL), "a control variate before any training")
        return None if known is None else self._judge(request, weights, rest, known, runner)

    def _judge(
        self, request: Request, weights: Weights, rest: Arrays, known: Fingerprint, runner: Runner
    ) -> Refusal | None:
        """Why the global weights are not used, or a tensor of them not summed; None if all is well."""
        for name in sorted(weights) if self._kinds[request.gives] is MaskedNumbers else ():
            if self._allow.keeps(Update.__name__, f"weights/{name}"):
                note = f"allow.must_stay names Update.weights/{name}, which the sum would have, too"
                return self.refuse(request, Refusal(RefusalCode.FIELD), note)
        try:
            Model.unpack({f"weights/{name}": array for name, array in weights.items()}, runner.shapes)
            if self._vouching is not None:
                return self._check_vouched(request, rest, runner)
            self._earned(request).judge(
                request.round,
                weights,
                known,
                runner.method,
                runner.model.initial_weights,
                lambda start: self._trial(runner, start),
                self._effort(request, runner),
            )
        except UnearnedError as error:
            code = RefusalCode.INITIAL if error.initial else RefusalCode.WEIGHTS
            return self.refuse(request, Refusal(code), str(error))
        return None

    def earlier_answer(self, request: Request) -> Arrays | None:
        """The answer that left when the same was asked before in this round, if it is still there."""
        return self._last(request).find(request, self._asked.sha256) if self._asked.sha256 else None

    def record(self, request: Request, arrays: Arrays, runner: Runner | None = None) -> Refusal | None:
        """Record what is about to leave, or say why it must not leave; `runner` has computed it just now."""
        kept = [name for name in sorted(arrays) if not self._allow.lets(request.gives, name)]
        if kept:
            note = f"allow.may_leave does not cover {request.gives}.{kept[0]}"
            return self.refuse(request, Refusal(RefusalCode.FIELD), note)
        if "examples" in arrays and (made_from := int(arrays["examples"])) < self._allow.examples:
            note = f"made from {made_from} examples, fewer than allow.examples"
            return self.refuse(request, Refusal(RefusalCode.EXAMPLES, self._allow.examples), note)
        with locked_in_turn(self._folder.path):  # the same request may have come more than once at a time
            if self._is_repeated(request):
                refusal = Refusal(RefusalCode.REPEATS, self._allow.repeats)
                return self.refuse(request, refusal, "asked several times at once")
            if runner is not None and (over := self._over_budget(request, runner, spend=True)):
                return over
            self.vouch = self._tag(request, arrays)
            if request.phase != HOLDINGS:
                examples = None if self.vouch is None else int(arrays["examples"])
                self._answered.add(self._folder.fingerprint, request, self._asked.sha256, examples)
            leaves = {} if self.vouch is None else {"vouch": np.frombuffer(self.vouch, np.uint8)}
            self._write(request, request.gives, {**arrays, **leaves})
        if runner is not None and self._asked.sha256:
            self._last(request).add(request, self._asked.sha256, arrays)
            self._remember_step(request, runner)
        return None

    def refuse(self, request: Request | None, refusal: Refusal, note: str = "") -> Refusal:
        """Record that a refusal leaves instead of an answer; the note is for the site only."""
        numbers = {"why": np.asarray(refusal.code, np.int64), "number": np.asarray(refusal.number, np.int64)}
        self._write(request, REFUSAL, numbers, f"{refusal}{f' ({note})' if note else ''}")
        return refusal

    # The rules. Each gives a refusal, and what the site's own record says about it.

    def _agreement(self, request: Request) -> tuple[Refusal, str] | None:
        """The request must be for the experiment that was published, with the artefacts that this site has."""
        mine, asked = self._folder.prepared_with, request.artefacts
        if different := differences(mine, asked):
            name = different[0]
            note = f"{name}: prepared with {mine.get(name)}, asked with {asked.get(name)}"
            return Refusal(_DIFFERS.get(name, RefusalCode.ARTEFACTS)), note
        if request.config.get("plugins"):
            return Refusal(
                RefusalCode.CONFIG
            ), "asked to load plug-in files; a site uses only what is installed"
        wanted, published = agreed_part(request.config), agreed_part(self._folder.published)
        if keys := [key for key in wanted | published if wanted.get(key) != published.get(key)]:
            return Refusal(RefusalCode.CONFIG), f"asked for another {', '.join(keys)} than was published"
        return None

    def _method(self, request: Request) -> tuple[Refusal, str] | None:
        name = self._folder.published.method  # that of the request is the same
        if refused := refused_parts(self._allow, name):
            return Refusal(RefusalCode.METHOD), f"allow.methods does not name {refused[0]!r}"
        return None

    def _protection(self, request: Request) -> tuple[Refusal, str] | None:
        """Noise, sums and vouching that the site demands."""
        if self._allow.differential_privacy and (reason := not_private(self._folder.published)):
            return Refusal(RefusalCode.PRIVACY), reason
        if self._privacy.max_epsilon is not None and (reason := not_counted(self._folder.published)):
            return Refusal(RefusalCode.BUDGET), f"privacy.max_epsilon is set, and {reason}"
        if self._privacy.require_secure_sum and not self._folder.published.privacy.secure_sum:
            return Refusal(RefusalCode.SECURE_SUM), "the experiment has no secure sums"
        if self._allow.vouched and not self._folder.published.privacy.vouched:
            return Refusal(RefusalCode.VOUCHED), "allow.vouched, and the experiment has no privacy.vouched"
        if fine := too_fine(self._privacy, self._folder.published):
            return Refusal(RefusalCode.LEVELS, self._privacy.levels), fine
        return None

    def _message(self, request: Request) -> tuple[Refusal, str] | None:
        """Refuse before computing what could not leave afterwards."""
        kind = self._kinds.get(request.gives)
        if kind is None or not any(rule.split(".")[0] == request.gives for rule in self._allow.may_leave):
            return Refusal(RefusalCode.MESSAGE), f"allow.may_leave does not name {request.gives!r}"
        for field in kind.declared():
            if not self._allow.lets_field(request.gives, field):
                return Refusal(RefusalCode.FIELD), f"allow.may_leave does not cover {request.gives}.{field}"
        return None

    def _limits(self, request: Request) -> tuple[Refusal, str] | None:
        allow, training = self._allow, self._folder.published.training
        epochs, rounds = training.epochs, training.rounds if allow.rounds is None else allow.rounds
        if request.round > rounds:
            return Refusal(RefusalCode.ROUNDS, rounds), f"asked for round {request.round}"
        if epochs > allow.epochs:
            return Refusal(RefusalCode.EPOCHS, allow.epochs), f"asked for {epochs} epochs"
        if self._folder.sentences < allow.examples:
            note = f"holds {self._folder.sentences} sentences, fewer than allow.examples"
            return Refusal(RefusalCode.EXAMPLES, allow.examples), note
        check_whole(self._folder)  # a site with a broken record answers nothing
        return None

    def _is_repeated(self, request: Request) -> bool:
        """Whether as many other questions of this kind were answered in this round as are allowed.

        What a site holds is always told, and secure sums have notes of their own (`SiteSums.once`).
        """
        if request.phase == HOLDINGS or self._kinds[request.gives] in _OF_SUMS:
            return False
        run, asked = self._folder.fingerprint, self._asked.sha256 or UNNAMED
        return self._answered.others(run, request, asked) >= self._allow.repeats

    def _over_budget(self, request: Request, runner: Runner, *, spend: bool = False) -> Refusal | None:
        """Why another answer would cost more than is left, or None; `spend`: then count it, before it leaves."""
        kind, config = self._kinds[request.gives], self._folder.published
        if request.phase == HOLDINGS or kind in _OF_KEYS:
            return None  # nothing of the text
        spent, most, dp = self._budget.read(), self._privacy.max_epsilon, config.privacy.dp
        after = replace(spent, unnoised=spent.unnoised + 1)
        if dp is not None and vars(kind).get("covered_by_noise", False):
            held, sites = self._folder.sentences, len(self._folder.sites)
            numbers = 2 * sum(
                prod(shape) for shape in runner.shapes.values()
            )  # SCAFFOLD's: twice the model's
            after = spent.plus(answer_cost(dp, config, held, sites, numbers))
        if most is not None:
            epsilon = after.epsilon(self._privacy.delta)
            note = f"ε would be {epsilon:.4g}, and privacy.max_epsilon is {most:g}" if epsilon > most else ""
            if after.unnoised:
                note = f"{after.unnoised} answers without noise, which no privacy.max_epsilon covers"
            if note:
                return self.refuse(request, Refusal(RefusalCode.BUDGET), note)
        if spend:
            self._budget.write(after)
        return None

    # What the weights of a run are judged by.

    def _earned(self, request: Request) -> EarnedWeights:
        folder = self._folder.state / f"earned-{self._folder.fingerprint}"  # whatever the run is called
        dp = self._folder.published.privacy.site_noise
        noise = partial(longest_noise, dp, self._sites_at_least()) if dp else None
        return EarnedWeights(folder, self._allow.step, self._allow.against, noise, self._allow.toward)

    def _sites_at_least(self) -> float:
        """How many sites a round has on average, at least: that many share the noise of a sum.

        Of noise in shares there is up to 1.5 times the variance, for two thirds of the sites.
        """
        config = self._folder.published
        sites = max(config.training.fraction * (config.engine.min_sites or len(self._folder.sites)), 1.0)
        return sites * LEAST**1.5 if config.privacy.secure_sum else sites

    def _last(self, request: Request) -> LastAnswers:
        return LastAnswers(self._folder.state / request.run / "answers")

    def _remember_step(self, request: Request, runner: Runner) -> None:
        """Keep how far the site's own training went, of an answer for which it trained."""
        if self._vouching is None and issubclass(self._kinds[request.gives], _TRAINED):
            self._earned(request).trained(request.round, self._weights, runner.model.extractor.update())

    def _trial(self, runner: Runner, start: Weights) -> Tensors:
        """The site's own step from weights that it knows, by plain training: what it judges others by at first."""
        site = Site(runner.model, self._folder.number, 1, {Model: Model(start)})
        return FedAvg().train(site).weights

    def _effort(self, request: Request, runner: Runner) -> float:
        """Where sites send predictions: the coordinator's training steps on D_v for each of the site's; else 0."""
        kind = self._kinds[request.gives]
        summed = kind is MaskedNumbers and isinstance(runner.method, SummedPredictions)
        if not summed and not issubclass(kind, Predictions | BytePredictions):
            return 0.0
        training = self._folder.published.training
        batches = -(-self._folder.sentences // training.batch_size)
        return -(-len(runner.model.site_data.validation) // training.batch_size) / (training.epochs * batches)

    # Where sites vouch for updates.

    @property
    def _vouching(self) -> Vouching | None:
        """What this site vouches by, if the experiment says that sites do."""
        key = self._folder.triple_key
        if not self._folder.published.privacy.vouched or key is None:  # without it nothing is answered
            return None
        return Vouching(key, self._folder.fingerprint)

    def _check_vouched(self, request: Request, rest: Arrays, runner: Runner) -> Refusal | None:
        """Why weights are refused that are not made of updates that sites vouch for; None if they are."""
        vouching = self._vouching
        if request.round == 1:
            check_initial(self._weights, runner.model.initial_weights())
            return None
        assert vouching is not None
        shown = {name.removeprefix(_EARNED): one for name, one in rest.items() if name.startswith(_EARNED)}
        try:
            made = Earned.unpack(shown, runner.shapes)
        except RefusedError as error:
            problem = f"what they are made of is not shown: {error}"
            return self.refuse(request, Refusal(RefusalCode.TAGS), problem)
        for code, problem in self._vouched_problems(request, made, runner, vouching):
            if problem:
                return self.refuse(request, Refusal(code), problem)
        return None

    def _vouched_problems(
        self, request: Request, made: Earned, runner: Runner, vouching: Vouching
    ) -> Iterator[tuple[RefusalCode, str]]:
        """What may be wrong about weights and the list of what they are made of, one by one; mostly empty."""
        own = OwnUpdates(self._folder.number, self._answered.updates(self._folder.fingerprint))
        shown = ShownLists(self._folder.state / f"lists-{self._folder.fingerprint}.json")
        initial = runner.model.initial_weights()
        uniform = isinstance(runner.method, FedAvg) and runner.method.update_weight(Update({}, 2, 0.0)) == 1
        yield RefusalCode.TAGS, vouching.problem(made, request.round, initial, self._weights)
        yield RefusalCode.LEFT_OUT, own.left_out(made, self._allow.missing)
        yield RefusalCode.SIZES, own.outweighed(made, self._folder.sizes, uniform=uniform)
        yield RefusalCode.TAGS, shown.changed(made, request.round)

    def _tag(self, request: Request, arrays: Arrays) -> bytes | None:
        """What goes with an update, so that others can tell that it is in the weights; None of anything else."""
        vouching = self._vouching
        if vouching is None or not issubclass(self._kinds[request.gives], Update):
            return None
        shapes = {name: tensor.shape for name, tensor in self._weights.items()}
        flat = {name.removeprefix(_WEIGHTS): a for name, a in arrays.items() if name.startswith(_WEIGHTS)}
        trained = dense(self._weights, ModelTensors(rows=True).unpack(flat, shapes))
        asked = number(self._asked.sha256)
        tag = vouching.tag(request.round, self._folder.number, asked, self._weights, trained)
        return vouch(asked, tag)

    def _write(self, request: Request | None, message: str, arrays: Arrays, note: str = "") -> None:
        round_, phase = (request.round, request.phase) if request else (0, "unreadable")
        run = self._folder.fingerprint if self._folder.seal.exists() else "not prepared"
        privacy = self._budget.read().recorded(self._privacy.delta)
        entry = describe(run, round_, phase, message, arrays, note, self._asked, self._policy, privacy)
        key = self._folder.path / "site.key"
        lines, chain = append(self._folder.audit, entry, partial(signature, key) if key.exists() else None)
        self._answered.recorded(lines, chain)
        self.chain = bytes.fromhex(chain)


_TRAINED = (Update, Predictions, BytePredictions, MaskedNumbers)  # kinds of answers that come of training
_OF_KEYS = (PublicKeys, SealedShares, SignedLists, Unmasking)
_OF_SUMS = (*_OF_KEYS, MaskedNumbers)
_CONTROL = "Control."  # SCAFFOLD's: zero in the first round
_WEIGHTS, _EARNED = "weights/", "Earned."  # of an update's tensors, and of what weights are made of
_MODEL = "Model.weights/"  # how the arrays of global weights are called in a request
_DIFFERS = {
    "config": RefusalCode.CONFIG,
    "relations": RefusalCode.RELATIONS,
    "vocabulary": RefusalCode.VOCABULARY,
    "encoder": RefusalCode.ENCODER,
    "knowledge_base": RefusalCode.KNOWLEDGE_BASE,
    "validation": RefusalCode.VALIDATION,
}

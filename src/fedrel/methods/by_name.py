"""Methods by name: those of the package, of installed packages, and of a user's own file or notebook."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, get_args, get_origin

from fedrel.config.plugins import Registry
from fedrel.config.schema import AggregationSection, Config
from fedrel.errors import UserError, nearest
from fedrel.federation.messages import Array, Message
from fedrel.federation.method import Method
from fedrel.methods.composition import composed, method_of, reached
from fedrel.privacy.differential_privacy import check_accountant

_METHODS = Registry(Method, package="fedrel.methods", group="fedrel.methods", what="method")


def methods() -> dict[str, type[Method]]:
    """Every method by name."""
    return _METHODS.all()


def import_methods() -> None:
    """Import all methods, and so the messages that they declare."""
    _METHODS.import_all()


def parts(name: str) -> list[type[Method]]:
    """The classes that a name stands for: methods' names or `module:Class`, joined by `+`."""
    return [_METHODS.find(part) for part in name.split("+")]


def method(name: str, options: Mapping[str, Mapping[str, Any]]) -> Method:
    """The method of that name, or several composed with `+`, with the options given for each part."""
    chosen = parts(name)
    own = {part.name for part in chosen}
    for asked in options:
        if asked not in own and asked not in (known := methods()):
            raise UserError(f"no method is called {asked!r}", hint=nearest(asked, known))
    return method_of(chosen, options)


def option_settings(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a config that give these values to every part of the method that has such options."""
    return {
        f"methods.{part.name}.{option}": value
        for part in parts(name)
        for option, value in options.items()
        if option in part.model_fields
    }


def check_cohort(chosen: Method, config: Config, updates: int) -> None:
    """Fail if `[aggregation]` or `[privacy]` ask for what a round with so many updates cannot have."""
    check_aggregation(chosen, config.aggregation, updates)
    if config.privacy.secure_sum and updates < (least := config.privacy.min_cohort):
        raise UserError(
            f"privacy.secure_sum: a round has {updates} sites, and privacy.min_cohort demands {least}",
            hint="raise training.fraction, or have more sites",
        )


def check_protection(chosen: Method, config: Config) -> None:
    """Fail if secure sums or differential privacy are asked for, and the method cannot have them."""
    check_secure_sum(chosen, config)
    check_privacy(chosen, config)


def check_aggregation(chosen: Method, section: AggregationSection, updates: int) -> None:
    """Fail if `[aggregation]` asks for what a method cannot have; `updates` are how many a round brings.

    A method that trains in one place has nobody to distrust: for it the section says nothing.
    """
    if not chosen.several_sites or section.is_plain:
        return
    if reason := chosen.no_updates():
        raise UserError(
            f"[aggregation] has nothing to act on with {chosen.name}: {reason}",
            hint='leave norm_bound and share_cap out, and rule = "mean"',
        )
    if section.rule != "mean" and (reason := chosen.only_mean()):
        raise UserError(
            f"aggregation.rule {section.rule!r} cannot be used with {chosen.name}: {reason}",
            hint='aggregation.norm_bound and share_cap work with rule = "mean"',
        )
    liars = int(section.liars * updates + 1e-9)
    needed = {"krum": 2 * liars + 3, "multi-krum": 2 * liars + 3, "bulyan": 4 * liars + 3}.get(
        section.rule, 1
    )
    if updates < needed:
        raise UserError(
            f"aggregation.rule {section.rule!r} with {liars} liars needs {needed} updates a round, "
            f"and there are {updates}",
            hint="lower aggregation.liars, or raise training.fraction",
        )


def check_secure_sum(chosen: Method, config: Config) -> None:
    """Fail if secure sums are asked for, and the coordinator would need single sites' answers."""
    if not config.privacy.secure_sum:
        return
    if find_spec("cryptography") is None or find_spec("Crypto") is None:
        problem = "privacy.secure_sum needs cryptography and pycryptodome, which are not installed"
        raise UserError(problem, hint="pip install 'fedrel[privacy]'")
    _check_sum_is_enough(chosen, config, "privacy.secure_sum")
    if config.privacy.clip and (reason := chosen.no_updates()):
        raise UserError(f"privacy.clip: {chosen.name} has no updates to scale: {reason}", hint="leave it out")


def check_privacy(chosen: Method, config: Config) -> None:
    """Fail if differential privacy is asked for, and the method's answers would tell more than noise covers."""
    dp = config.privacy.dp
    if dp is None:
        return
    check_accountant()
    if chosen.unprotected:
        raise UserError(
            f"privacy.dp: {chosen.unprotected}, would tell more than the noise covers",
            hint="choose another method, such as one",
        )
    if dp.level == "sentence":
        _check_examples_are_enough(chosen, parts(config.method))
    if dp.level == "site":
        _check_sum_is_enough(chosen, config, "privacy.dp")
        if config.engine.extra_sites:
            problem = "privacy.dp: a site that replaces another is not drawn as the accountant assumes"
            raise UserError(problem, hint="leave out engine.extra_sites")
        if config.privacy.secure_sum and dp.adaptive_clip is not None:
            problem = "privacy.dp.adaptive_clip: under secure sums nobody counts the updates within the norm"
            raise UserError(problem, hint="leave it out")


def _check_examples_are_enough(chosen: Method, named: Sequence[type[Method]]) -> None:
    """Fail if local training uses more of a site's text than one example at a time."""
    if chosen.beyond_examples:
        raise UserError(
            f"privacy.dp: {chosen.beyond_examples}, which noise on examples does not cover",
            hint="choose another method, such as fedavg",
        )
    for part in named:
        own = part.__module__.startswith(f"{__package__}.")
        if not own and "beyond_examples" not in vars(part):
            raise UserError(
                f"privacy.dp: {part.name} does not say that noise on examples covers all that its sites tell",
                hint='if its loss and answers use one example at a time, write beyond_examples = "" in its class',
            )


def _check_sum_is_enough(chosen: Method, config: Config, key: str) -> None:
    """Fail if the coordinator would need single sites' answers."""
    if not chosen.several_sites:
        raise UserError(
            f"{key}: {chosen.name} trains in one place, so there is no sum to hide in",
            hint=f"leave {key} out",
        )
    single = chosen.single_answers
    if config.aggregation.rule != "mean":
        single = f"aggregation.rule {config.aggregation.rule!r}"
    elif config.aggregation.norm_bound or config.aggregation.share_cap:
        single = "aggregation.norm_bound or share_cap"
    if single:
        raise UserError(
            f"{key}: {single} needs the answers of single sites",
            hint=f"leave out {key}, or what needs single answers",
        )


def gives_mean(chosen: Method) -> bool:
    """Whether a method's global weights are a mean of the sites' updates, and nothing beside it."""
    classes = type(chosen).__mro__
    beyond = any("reach" in vars(part) for part in classes[: classes.index(Method)])
    return not (chosen.no_updates() or chosen.own_models or not chosen.several_sites or beyond)


def check_vouched(chosen: Method, config: Config) -> None:
    """Fail if sites are to vouch for updates, and the global weights are no mean of them."""
    if not config.privacy.vouched:
        return
    hint = "leave out privacy.vouched; sites then judge weights by how far they went (docs/protection.md)"
    if not gives_mean(chosen):
        problem = f"privacy.vouched: with {chosen.name}, the global weights are no mean of the sites' updates"
        raise UserError(problem, hint=hint)
    if config.aggregation.rule != "mean":
        problem = f"privacy.vouched: aggregation.rule {config.aggregation.rule!r} is no mean of the updates"
        raise UserError(problem, hint=hint)
    if config.engine.extra_sites:
        problem = "privacy.vouched: sites refuse weights without their updates, and extra_sites are not used"
        raise UserError(problem, hint="leave out engine.extra_sites")
    if config.privacy.secure_sum or config.privacy.site_noise:
        other = "secure_sum" if config.privacy.secure_sum else "dp"
        raise UserError(f"privacy.vouched and privacy.{other} do not work together yet", hint=hint)


@dataclass(frozen=True, slots=True)
class OptionDescription:
    """An option as `[methods.NAME]` takes it."""

    name: str
    type: str
    default: str
    about: str


@dataclass(frozen=True, slots=True)
class FieldDescription:
    """A field of a message: `type` says the numbers' type and dimensions."""

    name: str
    type: str
    about: str


@dataclass(frozen=True, slots=True)
class MessageDescription:
    """A kind of message that leaves a site."""

    name: str
    about: str
    fields: tuple[FieldDescription, ...]


@dataclass(frozen=True, slots=True)
class MethodDescription:
    """What a user wants to know of a method before choosing it."""

    name: str
    summary: str
    paper: str
    options: tuple[OptionDescription, ...]
    leaves_site: tuple[MessageDescription, ...]
    simulation_only: str | None
    """Why it may not run between real sites, with its default options."""
    trained_by: Literal["kernels", "graph"]
    """Whether PCNN's kernels do a site's training, or PyTorch's graph, step by step."""


def describe(name: str) -> MethodDescription:
    """What there is to know of a method, or of several composed with `+`."""
    chosen = parts(name)
    kind = composed(chosen)
    made = method_of(chosen, {})
    return MethodDescription(
        name=name,
        summary="; ".join(_first_line(part) for part in chosen),
        paper="; ".join(dict.fromkeys(part.paper for part in chosen)),
        options=tuple(option for part in chosen for option in _options(part, prefixed=len(chosen) > 1)),
        leaves_site=tuple(_message(message) for message in leaves_site(kind)),
        simulation_only=made.simulation_only(),
        trained_by="graph" if made.kernel_head() is None else "kernels",
    )


def leaves_site(kind: type[Method]) -> list[type[Message]]:
    """The kinds of message that sites send in a round of a method, if answers are not summed securely."""
    functions = (getattr(kind, name) for name in sorted(reached(kind, leave_out=["collect_sum"])))
    given = [function.gives for function in functions if getattr(function, "leaves_site", False)]
    return list(dict.fromkeys(given))


def _options(part: type[Method], *, prefixed: bool) -> list[OptionDescription]:
    return [
        OptionDescription(
            name=f"{part.name}.{name}" if prefixed else name,
            type=_type(field.annotation),
            default=json.dumps(field.get_default()),
            about=" ".join((field.description or "").split()),
        )
        for name, field in part.model_fields.items()
    ]


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(json.dumps(choice) for choice in get_args(annotation))
    return getattr(annotation, "__name__", str(annotation))


def _message(kind: type[Message]) -> MessageDescription:
    about = _field_docs(kind)
    fields = [
        FieldDescription(name, _numbers(declared), about.get(name, ""))
        for name, declared in kind.declared().items()
    ]
    return MessageDescription(kind.__name__, _first_line(kind), tuple(fields))


def _numbers(declared: Any) -> str:
    if not isinstance(declared, Array):
        return "float32, the model's tensors" + (", of tables only the changed rows" if declared.rows else "")
    sizes = " by ".join(map(str, declared.shape))
    return f"{declared.dtype}, {sizes}" if sizes else declared.dtype


def _field_docs(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a class; none where there is no source, as in a notebook."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
        except (OSError, TypeError, SyntaxError):
            continue
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = " ".join(text.split())
    return found


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]

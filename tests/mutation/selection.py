"""Which modules are changed, and which tests must notice: fast ones that run in one process."""

from __future__ import annotations

METHODS: dict[
    str, tuple[list[str], list[str]]
] = {  # by module: test files, and golden cases that it is used in
    "baselines": (["baselines", "feded", "options"], ["centralised", "centralised-share", "validation-only"]),
    "by_name": (["describe", "composition_rules", "sections", "site_level_privacy"], []),
    "claims": (["claims", "lazy_mil"], ["lazy-mil-keyed", "lazy-mil-pooled"]),
    "composition": (["composition_rules", "describe"], []),
    "controls": (["controls", "scaffold"], ["scaffold"]),
    "denoising": (["readable", "describe"], ["one", "ave", "att", "att-ra"]),
    "fedatt": (["fedatt", "options"], ["fedatt"]),
    "fedavg": (["fedavg", "options", "composition_rules"], ["fedavg", "fedavg-uniform"]),
    "fedcmc": (["fedcmc", "options"], ["fedcmc", "fedcmc-minor", "fedcmc-random"]),
    "feddyn": (["options", "feddyn"], ["feddyn"]),
    "feded": (["feded", "options"], ["feded", "feded-bytes", "feded-probabilities"]),
    "fedlc": (["fedlc", "options"], ["fedlc"]),
    "fedlcc": (["options", "fedlcc"], ["documents-fedlcc"]),
    "fedprox": (["options", "fedprox"], ["fedprox"]),
    "fedrs": (["options", "composition_rules", "fedrs"], ["fedrs"]),
    "lazy_mil": (["lazy_mil", "options"], ["lazy-mil", "lazy-mil-keyed", "lazy-mil-pooled"]),
    "lazy_one": (["lazy_one", "options"], ["lazy-one"]),
    "local_objective": (["fedavg", "fedlc", "options"], ["fedavg", "fedlc", "fedcmc"]),
    "local_training": (["local", "options"], ["local"]),
    "moon": (["options", "composition_rules", "moon"], ["moon"]),
    "scaffold": (["options", "scaffold"], ["scaffold", "scaffold-rate"]),
    "summed_answers": (["secure_sum"], ["fedavg"]),
    "summed_predictions": (["feded", "secure_sum"], ["feded", "feded-probabilities"]),
    "server": (["server", "options", "composition_rules"], ["fedavgm", "fedadam"]),
}
MESSAGES = "fedrel.federation.messages"
MODULES = [*(f"fedrel.methods.{name}" for name in METHODS), MESSAGES]
GOLDEN = "tests/golden/test_golden.py"
DECLARED = "tests/methods/test_declared.py"


def tests_of(module: str) -> list[str]:
    """The arguments for pytest."""
    if module == MESSAGES:
        return ["tests/federation/test_declarations.py", "tests/federation/test_messages.py", DECLARED]
    files, cases = METHODS[module.removeprefix("fedrel.methods.")]
    found = [*(f"tests/methods/test_{file}.py" for file in files), DECLARED]
    for case in cases:
        found.append(f"{GOLDEN}::test_losses_and_dev_metrics_are_the_recorded_ones[{case}]")
        found.append(f"{GOLDEN}::test_weights_and_metrics_have_the_recorded_hashes[{case}]")
    return found

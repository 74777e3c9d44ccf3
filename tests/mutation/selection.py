"""Which modules are changed, and which tests must notice: fast ones, in one process."""

from __future__ import annotations

METHODS = {  # a module, its test files, and the golden cases in which it takes part
    "centralised": (["test_composition"], ["centralised", "centralised-share", "centralised+one"]),
    "claims": (["test_lazy_mil"], ["lazy-mil-keyed", "lazy-mil-pooled"]),
    "composition": (["test_composition"], []),
    "contrast": (["test_moon"], ["moon"]),
    "controls": (["test_scaffold"], ["scaffold"]),
    "denoising": (["test_readable", "test_describe"], ["one", "ave", "att", "att-ra"]),
    "fedatt": (["test_fedatt"], ["fedatt"]),
    "fedavg": (["test_fedavg"], ["fedavg", "fedavg-uniform"]),
    "fedcmc": (["test_fedcmc"], ["fedcmc", "fedcmc-minor", "fedcmc-random"]),
    "feddyn": (["test_feddyn"], ["feddyn"]),
    "feded": (["test_feded"], ["feded", "feded-bytes", "feded-probabilities"]),
    "fedlc": (["test_fedlc"], ["fedlc"]),
    "fedlcc": (["test_fedlcc"], ["documents-fedlcc"]),
    "fedprox": (["test_fedprox"], ["fedprox"]),
    "fedrs": (["test_fedrs"], ["fedrs"]),
    "lazy_mil": (["test_lazy_mil"], ["lazy-mil", "lazy-mil-keyed", "lazy-mil-pooled"]),
    "moon": (["test_moon"], ["moon"]),
    "registry": (["test_describe", "test_composition"], []),
    "scaffold": (["test_scaffold"], ["scaffold", "scaffold-rate"]),
    "server": (["test_server"], ["fedavgm", "fedadam"]),
    "validation_only": (["test_feded"], ["validation-only"]),
}
MESSAGES = "fedrel.federation.messages"
MODULES = [*(f"fedrel.methods.{name}" for name in METHODS), MESSAGES]
GOLDEN = "tests/golden/test_golden.py"


def tests_of(module: str) -> list[str]:
    """The arguments for pytest."""
    if module == MESSAGES:
        return ["tests/federation/test_messages.py"]
    files, cases = METHODS[module.removeprefix("fedrel.methods.")]
    found = [f"tests/methods/{file}.py" for file in files]
    for case in cases:
        found.append(f"{GOLDEN}::test_losses_and_dev_metrics_are_the_recorded_ones[{case}]")
        found.append(f"{GOLDEN}::test_weights_and_metrics_have_the_recorded_hashes[{case}]")
    return found

"""The part that breaks NICs under NCCL: all results must be right, and no job may end.

The NICs are four software NICs a rank on loopback addresses, which `r2ccl chaos` breaks."""

import launch
import parts
from chaos import Breaker, Cutter

NICS = ",".join(f"127.0.0.{number}" for number in range(2, 6))
# Paths come back soon, and as soon again: many faults in little time.
SETTINGS = {
    "R2CCL_FABRIC": "soft", "R2CCL_SOFT_NICS": NICS, "R2CCL_CHAOS": "1",
    "R2CCL_HOLD_DOWN": "100ms", "R2CCL_FLAP_DAMPING": "0",
}
# Faults over all launches of the part.
FAULTS_MIN = 100
COLLECTIVES_S, TRAINING_STEPS, TRAINING_RANKS = 25, 60, 4
CONTRAST_S, CUT_AFTER_S = 30, 2.0


def run(context, command):
    """The part; `command` is the `r2ccl` that breaks NICs."""
    if command is None:
        return {"skipped": "needs --command, the r2ccl of the same build", "problems": []}
    outcomes, breakers = {}, {}

    def start(name, arguments, ranks, env, limit_s, breaks):
        boards = context.scratch / f"boards-{name}"
        boards.mkdir()
        env = {**context.plugin_env(), **SETTINGS, "R2CCL_BOARD": str(boards), **env}
        if breaks:
            breakers[name] = Breaker(command, boards, name)
        outcome = launch.run_ranks(context, f"faults-{name}", arguments, ranks, env, limit_s,
                                   meanwhile=breakers.get(name))
        parts.checked(context, outcome, env["NCCL_PROTO"])
        if breaks:
            outcome.problems += breakers[name].problems
        outcomes[name] = outcome

    for protocol in ("Simple", "LL"):
        start(protocol, ["rank_faults.py", str(COLLECTIVES_S)], 2, {"NCCL_PROTO": protocol},
              120, True)
    for name, breaks in (("training", True), ("training-whole", False)):
        start(name, ["rank_training.py", str(TRAINING_STEPS)], TRAINING_RANKS, parts.PINNED,
              150, breaks)
    problems = [f"{item.name}: {text}" for item in outcomes.values() for text in item.problems]
    problems += parts.training_differences(outcomes["training"], outcomes["training-whole"])
    reports = {name: breaker.report() for name, breaker in breakers.items()}
    struck = sum(sum(report["faults"].values()) for report in reports.values())
    if struck < FAULTS_MIN:
        problems.append(f"only {struck} faults struck; {FAULTS_MIN} are wanted")
    problems += [f"{name}: no path failed, so the faults hit nothing"
                 for name, report in reports.items() if report["failovers"] == 0]
    return {
        "problems": problems,
        "launches": [item.report() for item in outcomes.values()],
        "struck": struck, "chaos": reports,
        "cases": parts.cases_of([outcomes["Simple"], outcomes["LL"]]),
        "contrast": contrast(context),
    }


def contrast(context):
    """What becomes of a job over NCCL's socket transport whose connections are shut down."""
    cutter = Cutter(CUT_AFTER_S)
    outcome = launch.run_ranks(context, "faults-contrast", ["rank_faults.py", str(CONTRAST_S)], 2,
                               context.socket_env(), 90, meanwhile=cutter)
    return {"connections_cut": cutter.cut, "seconds": round(outcome.seconds, 1),
            "ended": [text[:300] for text in outcome.problems[:4]]}

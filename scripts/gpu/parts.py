"""The parts of the check that start Python ranks. Each returns a dict with a `problems` list."""

import elf
import launch
import nccl_log

RANK_COUNTS = (2, 4)
PROTOCOLS = ("Simple", "LL", "LL128")
# Pins what decides in which order numbers are added.
PINNED = {
    "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple",
    "NCCL_MIN_NCHANNELS": "2",
    "NCCL_MAX_NCHANNELS": "2",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
# Growth that is not called a leak, over all cycles after the warm-up.
SLACK = {"descriptors": 2, "threads": 1, "rss_kib": 8192}
CYCLE_WARM_UP = 10
# Since this release NCCL takes a list of plugins.
LISTS_SINCE = (2, 27)
# A name that no plugin has is refused at once; the rest is starting Python.
REFUSAL_LIMIT_S = 60
# A dead peer is seen by the network within seconds; torch's own limit is 60 s.
DEATH_LIMIT_S = 30.0


def _part(launches):
    problems = [f"{item.name}: {text}" for item in launches for text in item.problems]
    return {"problems": problems, "launches": [item.report() for item in launches]}


def checked(context, outcome, protocol=None, exported=None):
    """Adds to the outcome what its logs say against it. The plugin must have been used."""
    if outcome.logs:
        offered = exported or elf.net_versions(context.plugin)
        table = nccl_log.expected_table(_version([outcome]), offered)
        outcome.problems += nccl_log.problems(outcome.logs, context.network, table, protocol)
    if context.libnccl is not None:
        for rank, result in enumerate(outcome.ranks):
            if str(context.libnccl) not in result.get("libnccl", [str(context.libnccl)]):
                outcome.problems.append(f"rank {rank} used {result['libnccl']}")
    return outcome


def cases_of(launches):
    """Sums of the cases that launches have checked, by kind."""
    total = {}
    for item in launches:
        for kind, count in (item.ranks[0] if item.ranks else {}).get("cases", {}).items():
            total[kind] = total.get(kind, 0) + count
    return total


def collectives(context):
    """Every operation on 2 and 4 ranks under each protocol; LL128 only informs."""
    required, informing = [], []
    level = "many" if context.quick else "all"
    for ranks in RANK_COUNTS:
        for protocol in PROTOCOLS:
            optional = protocol == "LL128"
            if optional and (context.quick or ranks != RANK_COUNTS[0]):
                continue
            env = {**context.plugin_env(), "NCCL_PROTO": protocol}
            arguments = ["rank_collectives.py", "few" if optional else level]
            name = f"collectives-{ranks}-{protocol}"
            outcome = launch.run_ranks(context, name, arguments, ranks, env, 150)
            checked(context, outcome, None if optional else protocol)
            (informing if optional else required).append(outcome)
    result = _part(required)
    result["cases"] = cases_of(required)
    result["informational"] = [item.report() for item in informing]
    return result


def versions(context):
    """One launch for each table this NCCL knows, the newer ones hidden in a copy of the file."""
    launches = []
    exported = elf.net_versions(context.plugin)
    # The newest is what every other part runs.
    for version in exported[:-1] or exported:
        kept = [v for v in exported if v <= version]
        variant = context.scratch / "variants" / f"v{version}" / context.plugin.name
        elf.keep_up_to(context.plugin, variant, version)
        env = {**context.plugin_env(variant), "NCCL_PROTO": "Simple"}
        name = f"versions-v{version}"
        outcome = launch.run_ranks(context, name, ["rank_collectives.py", "few"], 2, env, 90)
        launches.append(checked(context, outcome, "Simple", kept))
    result = _part(launches)
    seen = {table for item in launches for table in item.report()["tables"]}
    result["tables"] = sorted(seen)
    if launches and not seen and any(item.logs for item in launches):
        result["problems"].append("NCCL's log names no table")
    return result


def loading(context):
    """The ways to name the plugin, a name that is not its, and bootstrap over it."""
    suffix = context.plugin.name.removeprefix("libnccl-net-").removesuffix(".so")
    searched = f"{context.plugin.parent}:{context.base_env().get('LD_LIBRARY_PATH', '')}"
    path = {"LD_LIBRARY_PATH": searched}
    ways = {
        "suffix": {"NCCL_NET_PLUGIN": suffix, **path},
        "bootstrap": {"NCCL_OOB_NET_ENABLE": "1"},
        "list": {"NCCL_NET_PLUGIN": f"none-such,{suffix}", **path},
    }
    launches, arguments = [], ["rank_collectives.py", "few"]
    for way, settings in ways.items():
        if way == "list" and _version(launches) < LISTS_SINCE:
            continue
        env = {**context.plugin_env(), **settings}
        outcome = launch.run_ranks(context, f"loading-{way}", arguments, 2, env, 90)
        launches.append(checked(context, outcome))
    result = _part(launches)
    env = {**context.plugin_env(), "NCCL_NET": "NoSuchNetwork"}
    outcome = launch.run_ranks(context, "loading-other-name", arguments, 2, env, REFUSAL_LIMIT_S)
    if not outcome.problems:
        result["problems"].append("NCCL_NET=NoSuchNetwork did not fail")
    if outcome.seconds >= REFUSAL_LIMIT_S:
        result["problems"].append("NCCL_NET=NoSuchNetwork hung instead of failing")
    result["launches"].append({**outcome.report(), "expected": "fails"})
    return result


def _version(launches):
    """The NCCL version that the logs show, (0,) if none does."""
    found = (log.version for item in launches for log in item.logs if log.version)
    return next(found, (0,))


def _growth(series):
    """What the last cycle has over the warmed-up one."""
    start = min(CYCLE_WARM_UP, len(series) // 2)
    return {key: series[-1][key] - series[start][key] for key in series[-1]}


def cycles(context):
    """Communicators made and destroyed; growth is compared with the socket transport's."""
    count = 20 if context.quick else 50
    outcomes, growth = {}, {}
    for network, env in (("plugin", context.plugin_env()), ("socket", context.socket_env())):
        arguments = ["rank_cycles.py", str(count)]
        outcome = launch.run_ranks(
            context, f"cycles-{network}", arguments, 2, env, 200, subsystems="INIT,NET,ENV"
        )
        if network == "plugin":
            checked(context, outcome)
        outcomes[network] = outcome
        growth[network] = [_growth(r["series"]) for r in outcome.ranks if r.get("series")]
    result = _part(list(outcomes.values()))
    result["cycles"] = [len(rank.get("series", [])) for rank in outcomes["plugin"].ranks]
    result["growth"] = growth
    result["series"] = outcomes["plugin"].ranks[0].get("series", [])
    for rank, grown in enumerate(growth["plugin"]):
        for key, slack in SLACK.items():
            control = max((other[key] for other in growth["socket"]), default=0)
            if grown[key] > max(control, 0) + slack:
                text = f"rank {rank}: {key} grew by {grown[key]}, over sockets by {control}"
                result["problems"].append(text)
    return result


def lifecycle(context):
    """Communicators split, with and without shared resources, aborted and made anew."""
    outcomes = []
    for sharing in ("0", "1"):
        env = {**context.plugin_env(), "NCCL_COMM_SPLIT_SHARE_RESOURCES": sharing}
        outcome = launch.run_ranks(
            context, f"lifecycle-{sharing}", ["rank_lifecycle.py"], 2, env, 120
        )
        checked(context, outcome)
        if not all(log.splits for log in outcome.logs):
            outcome.problems.append("NCCL's log shows no split communicator")
        outcomes.append(outcome)
    result = _part(outcomes)
    ranks = [rank for outcome in outcomes for rank in outcome.ranks]
    result["abort_seconds"] = max(
        (max(rank["abort_seconds"]) for rank in ranks if rank.get("abort_seconds")), default=None
    )
    return result


def training_differences(mine, control):
    """Where two trainings, launches of the same ranks, have not given the same numbers."""
    found = []
    for rank, (row, other) in enumerate(zip(mine.ranks, control.ranks, strict=True)):
        for key in ("losses", "parameters"):
            if not row.get(key) or row[key] != other.get(key):
                found.append(f"rank {rank}: the {key} differ from those of {control.name}")
    return found


def training(context):
    """Losses and final parameters over the plugin equal those over sockets, bit by bit."""
    steps = "10" if context.quick else "40"
    ranks = 2 if context.quick else 4
    outcomes = {}
    for network, env in (("plugin", context.plugin_env()), ("socket", context.socket_env())):
        outcomes[network] = launch.run_ranks(
            context, f"training-{network}", ["rank_training.py", steps], ranks,
            {**env, **PINNED}, 150,
        )
    checked(context, outcomes["plugin"], "Simple")
    outcomes["socket"].problems += nccl_log.problems(outcomes["socket"].logs, "Socket")
    result = _part(list(outcomes.values()))
    result["problems"] += training_differences(outcomes["plugin"], outcomes["socket"])
    shown = ("losses", "first", "last", "parameters")
    result["rank0"] = {key: outcomes["plugin"].ranks[0].get(key) for key in shown}
    result["steps"], result["ranks"] = int(steps), ranks
    return result


def death(context):
    """A rank killed under traffic gives the other an error soon, by the network's word."""
    env = {
        **context.plugin_env(),
        "TORCH_NCCL_BLOCKING_WAIT": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    }
    outcome = launch.run_ranks(
        context, "death", ["rank_death.py"], 2, env, 100, may_die={1}
    )
    checked(context, outcome)
    result = _part([outcome])
    seconds = outcome.ranks[0].get("seconds")
    result["seconds_to_error"] = seconds
    result["error"] = outcome.ranks[0].get("error")
    if seconds is None or seconds > DEATH_LIMIT_S:
        result["problems"].append(f"the survivor got its error after {seconds} s")
    return result


def jax(context):
    """JAX over several processes, one GPU each."""
    import importlib.util

    if importlib.util.find_spec("jax") is None:
        return {"skipped": "JAX is not installed", "problems": []}
    if context.gpus < 2:
        return {"skipped": "needs two GPUs: JAX does not share one", "problems": []}
    env = {**context.plugin_env(), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    outcome = launch.run_ranks(
        context, "jax", ["rank_jax.py"], 2, env, 180, devices_visible=True
    )
    checked(context, outcome)
    result = _part([outcome])
    result["cases"] = cases_of([outcome])
    result["jax"] = outcome.ranks[0].get("jax")
    return result

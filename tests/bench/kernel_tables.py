"""The tables of single kernels in docs/performance.md: matrix products and attention on one thread,
as parts of what machine_bench says that a core can do.
"""
import re

from performance_processes import RunError

COLUMNS = (1, 8, 32, 512)
WEIGHTS_BYTES = 100_000_000  # what matmul_bench reads, about
CONTEXTS = ("4096/1", "32768/1", "512/512", "4096/512")  # positions / queries


def part(value, limit):
    return f" ({value / limit * 100:.0f}%)" if limit else ""


def best_path(names):
    """The widest path stands last."""
    paths = [name.split("/")[0] for name in names if "/columns/" in name]
    return paths[-1] if paths else None


def markdown(rows):
    head = [rows[0], ["---"] * len(rows[0])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in head + rows[1:])


def of_part(figures, counter, limit, digits=0):
    """A figure and its part of the limit; empty where the benchmark has no such case."""
    value = (figures or {}).get(counter)
    return "" if value is None else f"{value:.{digits}f}{part(value, limit)}"


def products(machine):
    """Matrix products of each weight type. Errors: RunError without matmul_bench, or where it prints no figures."""
    path = best_path(machine.names("matmul_bench"))
    if path is None:
        raise RunError("matmul_bench has no products")
    gb_limit = machine.read_gb_per_s(WEIGHTS_BYTES, 1)
    gops_limit = machine.int8_gops(1)
    pattern = f"^{re.escape(path)}/[A-Z0-9_]+/columns/({'|'.join(map(str, COLUMNS))})$"
    found = machine.measures("matmul_bench", pattern, "GOPS")
    packed = machine.pack_gb_per_s()
    types = list(dict.fromkeys(name.split("/")[1] for name in found))
    rows = [["weights", "1 row: GB/s"] + [f"{n} rows: GOPS" for n in COLUMNS[1:]] + ["repacking: GB/s"]]
    for kind in types:
        # Float weights are multiplied as floats: the integer peak is no limit of theirs.
        limit = gops_limit if kind.startswith("Q") else None
        one, *more = [found.get(f"{path}/{kind}/columns/{n}") for n in COLUMNS]
        rows.append([kind, of_part(one, "GB/s", gb_limit, 1)] + [of_part(figures, "GOPS", limit) for figures in more] +
                    [f"{packed[kind]:.1f}" if kind in packed else ""])
    limits = [f"{gb_limit:.1f} GB/s"] if gb_limit else []
    limits += [f"{gops_limit:.0f} GOPS"] if gops_limit else []
    return (f"{path}, one thread; in brackets the part of {' and '.join(limits) or 'no known limit'}.\n\n"
            + markdown(rows))


def attention(machine):
    """Attention for each head shape and KV type. Errors: RunError without cpu_bench, or where it prints no figures."""
    names = [name for name in machine.names("cpu_bench") if re.match("attention/[^/]+/", name)]
    if not names:
        raise RunError("cpu_bench has no attention")
    path = names[-1].split("/")[1]
    pattern = f"^attention/{re.escape(path)}/.*/({'|'.join(CONTEXTS)})$"
    found = machine.measures("cpu_bench", pattern, "GOPS")
    limit = machine.f32_gops(1)
    cases = list(dict.fromkeys("/".join(name.split("/")[:4]) for name in found))
    rows = [["heads", "KV", "1 query at 4,096: GB/s, GOPS", "1 query at 32,768: GB/s, GOPS", "512 queries: GOPS",
             "512 queries at 4,096: GOPS"]]
    for case in cases:
        _, _, shape, kv_type = case.split("/")
        numbers = re.fullmatch(r"(\d+)x(\d+)_(\d+)", shape)
        title = "{1} of {0}, {2} for keys".format(*numbers.groups()) if numbers else shape
        figures = [found.get(f"{case}/{context}") for context in CONTEXTS]
        deep = [", ".join(filter(None, (of_part(f, "GB/s", None, 1), of_part(f, "GOPS", None)))) for f in figures[:2]]
        rows.append([title, kv_type] + deep + [of_part(f, "GOPS", limit) for f in figures[2:]])
    return (f"{path}, one thread; in brackets the part of "
            f"{f'{limit:.0f} F32 GOPS' if limit else 'no known limit'}.\n\n" + markdown(rows))

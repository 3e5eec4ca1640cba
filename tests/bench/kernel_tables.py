"""The tables of single kernels in docs/performance.md: matrix products and attention on one thread,
as parts of what machine_bench says that a core can do.
"""
import re

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


def products(machine):
    """Matrix products of each weight type; an empty text without matmul_bench."""
    path = best_path(machine.names("matmul_bench"))
    if path is None:
        return ""
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
        of_columns = [found[f"{path}/{kind}/columns/{n}"] for n in COLUMNS]
        gb_per_s = of_columns[0]["GB/s"]
        rows.append([kind, f"{gb_per_s:.1f}{part(gb_per_s, gb_limit)}"] +
                    [f"{figures['GOPS']:.0f}{part(figures['GOPS'], limit)}" for figures in of_columns[1:]] +
                    [f"{packed[kind]:.1f}" if kind in packed else ""])
    limits = [f"{gb_limit:.1f} GB/s"] if gb_limit else []
    limits += [f"{gops_limit:.0f} GOPS"] if gops_limit else []
    return (f"Matrix products, {path}, one thread; in brackets the part of {' and '.join(limits) or 'no known limit'}.\n\n"
            + markdown(rows))


def attention(machine):
    """Attention for each head shape and KV type; an empty text without cpu_bench."""
    names = [name for name in machine.names("cpu_bench") if name.startswith("attention/")]
    if not names:
        return ""
    path = names[-1].split("/")[1]
    pattern = f"^attention/{re.escape(path)}/.*/({'|'.join(CONTEXTS)})$"
    found = machine.measures("cpu_bench", pattern, "GOPS")
    limit = machine.f32_gops(1)
    cases = list(dict.fromkeys("/".join(name.split("/")[:4]) for name in found))
    rows = [["heads", "KV", "1 query at 4,096: GB/s, GOPS", "1 query at 32,768: GB/s, GOPS", "512 queries: GOPS",
             "512 queries at 4,096: GOPS"]]
    for case in cases:
        size, heads, kv_heads = re.fullmatch(r"(\d+)x(\d+)_(\d+)", case.split("/")[2]).groups()
        figures = [found[f"{case}/{context}"] for context in CONTEXTS]
        deep = [f"{f['GB/s']:.1f}, {f['GOPS']:.0f}" for f in figures[:2]]
        wide = [f"{f['GOPS']:.0f}{part(f['GOPS'], limit)}" for f in figures[2:]]
        rows.append([f"{heads} of {size}, {kv_heads} for keys", case.split("/")[3]] + deep + wide)
    return (f"Attention, {path}, one thread; in brackets the part of "
            f"{f'{limit:.0f} F32 GOPS' if limit else 'no known limit'}.\n\n" + markdown(rows))

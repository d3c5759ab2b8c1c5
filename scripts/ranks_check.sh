#!/usr/bin/env bash
# What many ranks cost and gain on one machine with a GPU: NCCL inside the captured step, two ranks on one GPU through the host,
# CPU ranks of one thread against one rank of many.
#
#     scripts/ranks_check.sh CFO MPI [OUT]
#
# CFO is the binary, MPI a folder with `bin/mpiexec` and `lib/` (PyPI's wheel `mpich`), OUT a folder for the raw documents
# (default: ranks-check). No network is needed. Each part is skipped, with a word, where what it needs is missing.
# `PARTS="sums cpu nccl share"` chooses parts, `CORES` the most CPU ranks.
set -uo pipefail
cfo=$(realpath "$1") mpi=$(realpath "$2") out=${3:-ranks-check}
parts=${PARTS:-sums cpu nccl share}
cores=${CORES:-$(nproc)}
mkdir -p "$out"
out=$(realpath "$out")
cd "$out"
launch() {
    local ranks=$1
    shift
    "$mpi/bin/mpiexec" -n "$ranks" "$@"
}
# Powers of two from a number on, and all cores.
ranks_up_to() { { printf '%d\n' 1 2 4 8 "$cores"; } | awk -v least="$1" -v most="$cores" '$1 >= least && $1 <= most' | sort -nu; }
say() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

say "devices of two ranks"
launch 2 "$cfo" devices --json >devices.json
launch 2 "$cfo" devices

# The same step without and with NCCL's sum of one rank, in turn, so that the machine disturbs both alike.
nccl() {
    local model round
    for model in unet1d unet2d; do
        for round in 1 2 3; do
            "$cfo" bench train-step --model $model --device cuda:0 --json >plain-$model-$round.json
            CFO_COLLECTIVES=nccl "$cfo" bench train-step --model $model --device cuda:0 --json >nccl-$model-$round.json
            CFO_COLLECTIVES=host "$cfo" bench train-step --model $model --device cuda:0 --json >host-$model-$round.json
        done
        python3 - $model <<'P'
import json, sys
model = sys.argv[1]
def least(kind):
    return min(json.load(open(f"{kind}-{model}-{n}.json"))["median_ms"] for n in (1, 2, 3))
plain, nccl, host = least("plain"), least("nccl"), least("host")
print(f"{model}: plain {plain:.3f} ms, with NCCL {nccl:.3f} ms ({100 * (nccl / plain - 1):+.2f} %), through the host {host:.3f} ms ({100 * (host / plain - 1):+.2f} %)")
P
    done
}

# Two ranks on one GPU train as one does, through pinned memory and MPI.
share() {
    "$cfo" simulate burgers --samples 24 --grid 64 --frames 41 --out burgers.h5
    cat >share.toml <<'R'
[data]
path = "burgers.h5"
split = [16, 4, 4]
[operator]
kind = "unet"
channels = [16, 32]
[train]
steps = 50
batch = 32
learning_rate = 1e-3
report_every = 1
validate_every = 0
R
    rm -rf share-one share-two share-three
    "$cfo" train share.toml --device cuda:0 --out share-one
    launch 2 "$cfo" train share.toml --device cuda:0 --out share-two
    launch 3 "$cfo" train share.toml --device cuda:0 --out share-three --set train.precision=f32
    python3 - <<'P'
import json
def losses(run):
    return [json.loads(line)["loss"] for line in open(f"{run}/metrics.jsonl")]
one = losses("share-one")
for run in ("share-two", "share-three"):
    worst = max(abs(a / b - 1) for a, b in zip(losses(run), one))
    print(f"{run}: {len(losses(run))} steps, losses differ from one rank by {worst:.1e} at most")
P
}

# A job with a GPU on one rank and none on another is refused, naming the rank.
mixed() {
    rm -rf mixed
    launch 2 sh -c '[ "$PMI_RANK" = 1 ] && device=cpu || device=cuda:0; exec "$0" train share.toml --device $device --out mixed' "$cfo" 2>mixed.txt
    local code=$?
    cat mixed.txt
    if [ $code = 2 ] && grep -q "rank 1 on .* has device a CPU, and rank 0 a GPU" mixed.txt; then
        echo "mixed: refused"
    else
        echo "mixed: NOT refused (exit code $code)"
    fi
}

# Samples per second of ranks of one thread against one rank of as many threads, on the U-Net 1D, and where the rest of a step goes: each
# rank's own computation, its wait for sums, and the same computation by as many processes that do not sum (what the cores, the caches
# and the memory take from each other). The rank that computes longest waits for the sums alone; the others wait for it too.
cpu() {
    local ranks batch=256 line
    line="bench train-step --model unet1d --device cpu --json"
    for ranks in $(ranks_up_to 1); do
        RAYON_NUM_THREADS=$ranks "$cfo" $line --batch $batch >threads-$ranks.json
        RAYON_NUM_THREADS=1 launch "$ranks" "$cfo" $line --batch $batch >ranks-$ranks.json
        RAYON_NUM_THREADS=1 CFO_MPI=off launch "$ranks" sh -c "exec \"\$0\" $line --batch $((batch / ranks)) >apart-$ranks-\$PMI_RANK.json" "$cfo"
        python3 - "$ranks" $batch <<'P'
import json, sys
ranks, batch = int(sys.argv[1]), int(sys.argv[2])
def load(name):
    return json.load(open(f"{name}.json"))
threads, found = (load(f"{kind}-{ranks}") for kind in ("threads", "ranks"))
rate = lambda found: 1e3 * batch / found["median_ms"]
print(f"{ranks}: one rank of {ranks} threads {rate(threads):.1f} samples/s, {ranks} ranks of one thread {rate(found):.1f} (ratio {rate(found) / rate(threads):.3f})")
def spread(values):
    return f"{min(values):.2f} / {sum(values) / len(values):.2f} / {max(values):.2f}"
rows = found.get("ranks", [])
if rows:
    slowest = max(rows, key=lambda row: row["own_ms"])
    print(f"   step {found['median_ms']:.2f} ms; own computation {spread([row['own_ms'] for row in rows])} ms, "
          f"waiting for sums {spread([row['waited_ms'] for row in rows])} ms (least / mean / most); "
          f"rank {slowest['rank']} computes longest and waits {slowest['waited_ms']:.2f} ms")
apart = [load(f"apart-{ranks}-{rank}")["median_ms"] for rank in range(ranks)]
print(f"   the same computation by {ranks} processes that do not sum: {spread(apart)} ms; by threads {threads['median_ms']:.2f} ms")
P
    done
}

# The constants of docs/developers/scaling.md: latency and bandwidth of a sum by MPI on this machine.
sums() {
    local ranks
    for ranks in $(ranks_up_to 2); do
        launch "$ranks" "$cfo" bench all-reduce --json >sums-$ranks.json
        launch "$ranks" "$cfo" bench all-reduce
    done
}

for part in $parts; do
    say "$part"
    if [ "$part" != cpu ] && [ "$part" != sums ] && ! "$cfo" devices --json | grep -q '"device": *"cuda:0"'; then
        echo "skipped: there is no GPU"
        continue
    fi
    $part
    if [ "$part" = share ]; then mixed; fi
done

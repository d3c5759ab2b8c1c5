#!/usr/bin/env bash
# What happens on a GPU machine when things go wrong, with a `cfo` built elsewhere:
#
#     cargo build --release -p cfo-cli        # copy target/release/cfo and recipes/ to FOLDER
#     scripts/gpu_faults.sh FOLDER
#
# Each line says what was done, whether it ended as it must, and the first line of the message.
set -u
folder=$(cd "${1:?folder of cfo and recipes}" && pwd)
cfo=$folder/cfo
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"
failures=0

# Runs a command: what it is, the exit status it must have (`refused`: any but 0), a pattern its output must show, the command.
expect() {
    local what=$1 status=$2 pattern=$3
    shift 3
    timeout 60 "$@" > output.txt 2>&1
    local found=$?
    local verdict=ok
    case $status in
        refused) [ $found -ne 0 ] && [ $found -lt 124 ] || verdict="FAILED (exit $found)" ;;
        *) [ $found -eq "$status" ] || verdict="FAILED (exit $found)" ;;
    esac
    grep -qiE "$pattern" output.txt || verdict="FAILED (no '$pattern')"
    [ "$verdict" = ok ] || { failures=$((failures + 1)); tail -5 output.txt; }
    printf '%-44s %s: %s\n' "$what" "$verdict" "$(grep -iE -m1 "$pattern" output.txt | cut -c1-160)"
}

"$cfo" simulate lorenz --out data.h5 --samples 40 --frames 101 > /dev/null 2>&1 || { echo "no data"; exit 1; }
train=("$cfo" train "$folder/recipes/lorenz.toml" --data data.h5 --set "data.split=[30,5,5]" --set train.batch=512)
short=("${train[@]}" --set train.steps=200 --set train.checkpoint_every=50)

expect "no GPU visible, auto" 0 "cpu" env CUDA_VISIBLE_DEVICES= "${train[@]}" --set train.steps=20 --out none --device auto
expect "no GPU visible, cuda:0" refused "cuda" env CUDA_VISIBLE_DEVICES= "${short[@]}" --out none2 --device cuda:0
expect "a GPU that is not there" refused "cuda:7" "${short[@]}" --out none3 --device cuda:7
expect "a batch too large" refused "batch" "$cfo" bench train-step --model unet2d --precision bf16 --batch 16384 --trajectories 2 --device cuda:0

# Libraries that are there in name only, or of another version.
mkdir broken && echo "not a library" > broken/libcudnn.so.9 && cp broken/libcudnn.so.9 broken/libnvrtc.so.13 && cp broken/libcudnn.so.9 broken/libnvrtc.so
expect "devices with broken libraries first" 0 "nvrtc|cudnn" env LD_LIBRARY_PATH="$work/broken:${LD_LIBRARY_PATH:-}" "$cfo" devices

# A GPU whose memory another process holds.
python3 - <<'P' &
import time, torch
free, _ = torch.cuda.mem_get_info()
held = torch.empty(int(free - 600 * 2**20), dtype=torch.uint8, device="cuda")
open("held", "w").close()
time.sleep(60)
P
holder=$!
for _ in $(seq 100); do [ -f held ] && break; sleep 0.3; done
expect "no free memory, cuda:0" refused "memory" "$cfo" bench train-step --model unet2d --precision bf16 --trajectories 2 --device cuda:0
kill $holder 2>/dev/null
wait $holder 2>/dev/null

# Interrupted and killed runs go on where they were.
whole=("${train[@]}" --set train.steps=24000 --set train.checkpoint_every=1000 --device cuda:0)
"${whole[@]}" --out run > first.txt 2>&1 &
process=$!
sleep 2
kill -INT $process
wait $process
echo "interrupted run: exit $?, $(ls run | tr '\n' ' ')"
expect "resumed after an interrupt" 0 "." "${train[@]}" --set train.steps=24000 --set train.checkpoint_every=1000 --device cuda:0 --out run --resume
"${whole[@]}" --out killed > second.txt 2>&1 &
process=$!
sleep 2
kill -KILL $process
wait $process 2>/dev/null
expect "resumed after a kill" 0 "." "${whole[@]}" --out killed --resume
echo "$failures failures"
exit $failures

#!/usr/bin/env bash
# Checks CUDA against the CPU and times training steps, with binaries built elsewhere:
#
#     cargo test --release -p cfo-engine --test it --no-run   # copy the executable to FOLDER/it
#     cargo build --release -p cfo-engine --example network_speed   # copy it to FOLDER/network_speed
#     scripts/gpu_check.sh FOLDER [tests|speed|sanitizer|all]
#
# Goes on after failures; a short table comes last.
set -u
folder=${1:?folder of the binaries}
what=${2:-all}
log=${OUT:-/tmp}/gpu_check
mkdir -p "$log"
export CFO_CACHE=${CFO_CACHE:-/tmp/cfo-cache}
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

tests() {
    timeout 240 "$folder/it" cuda:: --nocapture > "$log/tests.txt" 2>&1
    echo "tests: exit $?"
    grep -E "^FAILED|panicked|^test result|checks,|skipped|windows of 50|batches$" "$log/tests.txt" | sort | uniq -c | sort -rn | head -${LINES_OF_TESTS:-70}
    grep -E "^---- .* stdout|^error|DeviceFailure|failed: " "$log/tests.txt" | sort | uniq -c | sort -rn | cut -c1-300 | head -30
}

step() {
    timeout 200 "$folder/network_speed" "$@" > "$log/step.txt" 2>&1 || echo "failed ($?): $*"
    tail -40 "$log/step.txt"
}

speed() {
    for precision in f32 tf32 bf16; do step cuda $precision mlp 2048; done
    step cuda tf32 mlp 2048 train profile
    for precision in tf32 f32; do step cuda $precision unet1d 256; done
    step cuda tf32 unet1d 256 train profile
    step cuda bf16 unet2d 256 train profile
    step cuda bf16 unet2d 256 # a second start, with warm caches
    step cuda bf16 unet2d 256 forward profile
    step cuda tf32 unet2d 256 train profile
}

sanitizer() {
    for tool in memcheck racecheck initcheck; do
        timeout 300 compute-sanitizer --tool $tool "$folder/it" cuda::training_losses_agree --nocapture 2>&1 | tail -3
    done
}

case $what in
    all) tests; speed ;;
    *) $what ;;
esac

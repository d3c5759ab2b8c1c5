#!/usr/bin/env bash
# Checks CUDA against the CPU and times training steps, with binaries built elsewhere:
#
#     cargo test --release -p cfo-engine --test it --no-run         # copy the executable to FOLDER/it
#     cargo test --release -p cfo-cuda --lib --no-run               # to FOLDER/cuda
#     cargo test --release -p cfo --test it --no-run                # to FOLDER/networks
#     cargo build --release -p cfo --example network_speed          # to FOLDER/network_speed
#     scripts/gpu_check.sh FOLDER [small|tests|networks|speed|compare|details|sanitizer|all]
#
# `small` is for development: a kernel of each room and a training step, with few kernels to compile. `compare` runs
# FOLDER/network_speed_before, of an earlier commit, and FOLDER/network_speed in turns. Goes on after failures; a short table comes
# last. A further argument narrows the tests by name. Inputs are drawn with the seed that the log names; CFO_SEED repeats it.
set -u
folder=${1:?folder of the binaries}
what=${2:-all}
only=${3:-cuda::}
log=${OUT:-/tmp}/gpu_check
mkdir -p "$log"
export CFO_CACHE=${CFO_CACHE:-/tmp/cfo-cache}
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

# Runs one test binary: name, then its filters.
binary() {
    local name=$1
    shift
    timeout 240 "$folder/$name" "$@" --nocapture > "$log/$name.txt" 2>&1
    echo "$name: exit $?, $SECONDS s"
    grep -E "^FAILED|panicked|^test result|checks,|skipped|CFO_SEED|windows of 50|batches$|round [0-9]|FAILED$" "$log/$name.txt" | sort | uniq -c | sort -rn | head -${LINES_OF_TESTS:-70}
    grep -E "^error|DeviceFailure|failed: " "$log/$name.txt" | sort | uniq -c | sort -rn | cut -c1-300 | head -30
}

tests() {
    binary it "$only"
    if [ -x "$folder/cuda" ]; then binary cuda tests::; fi
}

# One test of each room: products, convolutions, norms, other operations, a program as a whole. Those that compile many kernels or
# compare large results with double precision on the CPU are left out.
small() {
    binary it ${SMALL:-cuda::products_of_extremes cuda::layers::two_channels_of cuda::layers::a_block_keeps cuda::losses cuda::several_steps}
}

# Whole networks, training and streaming.
networks() {
    binary networks cuda:: gpu
    sed -n '/panicked/,/stack backtrace/p' "$log/networks.txt" | head -40
}

step() {
    timeout 200 "$folder/network_speed" "$@" > "$log/step.txt" 2>&1 || echo "failed ($?): $*"
    head -${LINES_OF_STEP:-40} "$log/step.txt"
    cat "$log/step.txt" >> "$log/steps.txt"
}

speed() {
    step cuda bf16 unet2d 256 train profile
    step cuda bf16 unet2d 256 # a second start, with warm caches
    step cuda bf16 unet2d 256 forward
    step cuda tf32 unet2d 256 train profile
    step cuda bf16 dit 256 train profile
    step cuda f32 fno1d 256 train profile
    step cuda tf32 unet1d 256 train profile
    for precision in f32 tf32 bf16; do step cuda $precision mlp 2048; done
}

# An earlier version and this one in turns, each with a cache of its own: the first round starts cold, the second warm.
compare() {
    local row round which
    for row in "bf16 unet2d 256" "tf32 unet2d 256" "bf16 dit 256" "f32 fno1d 256" "tf32 unet1d 256" "f32 mlp 2048"; do
        for round in "1 train" "2 train" "forward"; do
            for which in _before ""; do
                # shellcheck disable=SC2086
                CFO_CACHE=$CFO_CACHE$which timeout 200 "$folder/network_speed$which" cuda $row ${round#[12] } 2>&1 |
                    head -1 | sed "s/^/${which:-_after} $round: /"
            done
        done
    done
}

# What each operation takes, one line a kind and size.
details() {
    for row in "bf16 dit 256" "f32 fno1d 256" "tf32 unet2d 256" "bf16 unet2d 256" "tf32 mlp 2048" "tf32 unet1d 256"; do
        # shellcheck disable=SC2086
        LINES_OF_STEP=9 step cuda $row train details
    done
}

# Every tool on every test named in SANITIZED, side by side.
sanitizer() {
    local tool test
    for tool in memcheck racecheck initcheck; do
        for test in ${SANITIZED:-several_steps attentions layers::two_channels layers::a_part_of lines::odd_normed products_of_our_own}; do
            timeout "${SANITIZER_SECONDS:-150}" compute-sanitizer --tool $tool "$folder/it" "cuda::$test" --test-threads=1 --nocapture > "$log/$tool-$test.txt" 2>&1 &
        done
    done
    wait
    for tool in memcheck racecheck initcheck; do
        for test in ${SANITIZED:-several_steps attentions layers::two_channels layers::a_part_of lines::odd_normed products_of_our_own}; do
            echo "$tool $test: $(grep -aE "ERROR SUMMARY|RACECHECK SUMMARY|test result" "$log/$tool-$test.txt" | sed 's/=* //' | cut -c1-60 | tr '\n' ';')"
        done
    done
}

case $what in
    all) tests; networks; speed ;;
    *) $what ;;
esac

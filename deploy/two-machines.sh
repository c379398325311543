#!/bin/sh
# Starts a command of Gannet over two machines without ssh, with MPICH's manual launcher: this
# machine is the first. Prints the line to type on the second.
#
#     deploy/two-machines.sh FIRST SECOND gannet serve -m MODEL
#
# FIRST and SECOND are addresses at which the machines reach each other. MPIRUN names the launcher;
# it must have the same path on both machines.
set -eu

if [ $# -lt 3 ]; then
    echo "usage: $0 FIRST SECOND COMMAND [ARGUMENT...]" >&2
    exit 2
fi
first=$1 second=$2
shift 2
mpirun=${MPIRUN:-mpirun}
lines=$(mktemp -u)
mkfifo "$lines"
trap 'rm -f "$lines"' EXIT

# What the launcher prints before the ranks are there are lines to type; the rest is of the ranks.
"$mpirun" -launcher manual -hosts "$first,$second" -n 2 -ppn 1 "$@" > "$lines" &
launcher=$!
trap 'kill "$launcher" 2> /dev/null || true' INT TERM
number=0
while IFS= read -r line; do
    case $line in
        "HYDRA_LAUNCH: "*)
            number=$((number + 1))
            command=${line#HYDRA_LAUNCH: }
            if [ "$number" = 1 ]; then
                sh -c "exec $command" < /dev/null &
            else
                echo "On the second machine ($second), type:" >&2
                echo "    $command" >&2
            fi
            ;;
        HYDRA_LAUNCH_END) ;;
        *) printf '%s\n' "$line" ;;
    esac
done < "$lines"
wait "$launcher"

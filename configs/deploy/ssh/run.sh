#!/bin/bash
# run.sh HOSTFILE JOB OUT [OPTION...] - runs JOB on the hosts of a host file of Open MPI, which ssh reaches without a password.
# First doctor checks the hosts. If one is lost, the ranks are started again and continue the batch in OUT.
# The file has a line `NAME slots=RANKS` for each host. On all hosts program, job, model and OUT have the same paths.
set -euo pipefail
if [ $# -lt 3 ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
fi
hosts=$(realpath -e "$1") job=$(realpath -e "$2") out=$(realpath "$3")
tessera=$(command -v tessera) || { echo "run.sh: tessera is not on the PATH" >&2; exit 2; }
ranks=$(awk '!/^[ \t]*(#|$)/ { n = 1; for (i = 2; i <= NF; i++) if ($i ~ /^slots=/) n = substr($i, 7); all += n }
             END { print all + 0 }' "$hosts")
if [ "$ranks" = 0 ]; then
    echo "run.sh: $hosts: has no host; a line is NAME slots=RANKS" >&2
    exit 2
fi
case $hosts in *[[:space:]]*) echo "run.sh: $hosts: a path without spaces is needed" >&2; exit 2 ;; esac
# the last three: a cut network is noticed in seconds instead of minutes
options="-n $ranks --hostfile $hosts --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 2"
# shellcheck disable=SC2086 # several words
mpirun $options "$tessera" doctor "$job"
exec "$tessera" run "$job" --out "$out" --mpirun "$options" "${@:4}"

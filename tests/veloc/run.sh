#!/bin/sh
# run.sh RANKS PROGRAM ARGUMENT...: the program in a directory of its own, which it gets as its first argument; more ranks
# than one under $MPIRUN (default: mpirun).
set -eu
ranks=$1 program=$2
shift 2
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mkdir "$directory/scratch" "$directory/persistent"
[ "$ranks" -gt 1 ] || { "$program" "$directory" "$@"; exit; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
"${MPIRUN:-mpirun}" -n "$ranks" "$program" "$directory" "$@"

#!/bin/sh
# backend.sh BACKEND JOB [AGENT]: what jobs of four ranks leave is sent by the backend of their node, whatever was killed. The
# agent of a pool is that program, which is found beside the job's own; else it is a thread of a rank.
set -eu
backend=$1 job=$2
directory=$(mktemp -d)
config=$directory/veloc.cfg served=
stop() {
  [ -z "$served" ] || kill -9 "$served" 2>/dev/null || true
  served=
}
remove() { until rm -rf "$@" 2>/dev/null; do sleep 0.1; done; } # while the one that was killed goes
trap 'stop; remove "$directory"' EXIT
if [ $# -gt 2 ]; then
  mkdir "$directory/bin"
  cp "$job" "$3" "$directory/bin"
  job=$directory/bin/$(basename "$job")
fi
fail() {
  echo "$*" >&2
  find "$directory" -name log -exec cat {} + >&2
  exit 1
}
place=$directory # of scratch and persistent
mkdir "$place/scratch" "$place/persistent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
cat >"$directory/kill-agent" <<'END'
for process in /proc/[0-9]*; do
  grep -qs "BACKEND_TEST=$BACKEND_TEST" "$process/environ" && grep -qs ebbtide-agent "$process/comm" || continue
  kill -9 "${process#/proc/}" && echo "the agent was killed"
done
END
export CUDA_VISIBLE_DEVICES= # a checkpoint in a GPU is handed over later
export BACKEND_TEST="$directory" # tells the agent of these jobs from others
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none

configure() {
  printf 'scratch = %s\npersistent = %s\nhost_cache_size = 0.03\n%s\n' \
    "$place/scratch" "$place/persistent" "$1" >"$config"
}
# Refused: what was wrong, and with which key.
refused() {
  configure "$1"
  if "$backend" "$config" --disable-ec 2>"$directory/said"; then fail "it took: $1"; fi
  grep -q -- "$2" "$directory/said" || fail "of '$1' it said: $(cat "$directory/said")"
}
refused 'mode = never' 'mode = never is not valid: give sync or async'
refused 'mode = sync' 'mode = sync is not valid for a backend'
refused 'max_versions = -4' 'max_versions = -4'
refused 'persistent_interval = -1' 'nothing goes to persistent'
if "$backend" "$directory/none" --disable-ec 2>"$directory/said"; then fail "it took a configuration that is not there"; fi
grep -q "$directory/none" "$directory/said" || fail "it said: $(cat "$directory/said")"
if "$backend" 2>"$directory/said"; then fail "it took no configuration"; fi
grep -q usage "$directory/said" || fail "it said: $(cat "$directory/said")"
configure 'mode = async'

run() { "${MPIRUN:-mpirun}" -n 4 "$job" "$config" "$@"; }
# Its ranks send nothing themselves.
run_slowly() { EBBTIDE_LIMIT_SHARED=1 run "$@"; }
killed() { if run_slowly "$@" >"$directory/out" 2>&1; then fail "the job was not killed"; fi; }
# In the background, which returns once it serves; a second one says which process that is. The variables of a script's
# launcher are of the job, and not of the backend.
serve() {
  tries=0 # while the one that was killed goes
  until env SLURM_NTASKS_PER_NODE=192 "$@" "$backend" "$config" --disable-ec 2>"$directory/said" &&
    ! grep -q "a backend runs already" "$directory/said"; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "the backend did not start: $(cat "$directory/said")"
    sleep 0.1
  done
  "$backend" "$config" --disable-ec 2>"$directory/said" || fail "a second backend failed: $(cat "$directory/said")"
  served=$(sed -n 's/.*a backend runs already: process \([0-9]*\) .*/\1/p' "$directory/said")
  [ -n "$served" ] || fail "a second backend said: $(cat "$directory/said")"
}
# Version $1 of all ranks is in `persistent`, within two minutes.
sent() {
  tries=0
  for rank in 0 1 2 3; do
    until [ -e "$place/persistent/heat-$rank-$1.dat" ]; do
      tries=$((tries + 1))
      [ $tries -lt 1200 ] || fail "version $1 of rank $rank is not in persistent: $(cat "$directory/out")"
      sleep 0.1
    done
  done
}

# A job before there was a backend.
run 1 drained -1
# All ranks are killed as soon as they have written.
serve
killed 4 killed 1
sent 4
for store in "$directory"/scratch/.ebbtide-cache*/rank-*; do
  [ ! -e "$store" ] || fail "$store is there still, and no job will find it"
done
# The next job finds it where the node's disk is lost, and ends before all is sent, as the backend, which is killed. Its
# last version is the sixth: at a byte a second, a rank sends two at once at most, and so does the backend.
stop
remove "$directory"/scratch/.ebbtide-node*
serve EBBTIDE_LIMIT_SHARED=1
run_slowly 10 left 4
tries=0
until grep -rqs "process $served " "$directory"/scratch/.ebbtide-node*; do # it has opened the node's store
  tries=$((tries + 1))
  [ $tries -lt 1200 ] || fail "the backend did not begin to send: $(cat "$directory/out")"
  sleep 0.1
done
ls "$directory"/persistent/heat-*-10.dat >/dev/null 2>&1 && fail "version 10 was sent, at a byte a second"
stop
serve
sent 10
# Without a backend: what was killed is sent by the next job, which waits for that itself.
stop
killed 12 killed 10
run 13 left 12
sent 13
# The agent of the pool is killed, then the ranks.
killed 15 killed_after_agent 13
[ $# -lt 3 ] || grep -q "the agent was killed" "$directory/out" || fail "there was no agent: $(cat "$directory/out")"
serve
sent 15
run 16 drained 15
# A job of another size is told so.
if "${MPIRUN:-mpirun}" -n 2 "$job" "$config" 17 drained 16 >"$directory/out" 2>&1; then fail "a job of two ranks went on"; fi
grep -q "have 4 ranks, and this one has 2" "$directory/out" || fail "a job of two ranks said: $(cat "$directory/out")"
# By the clock, version 3 goes to `persistent`, and 4 need not; the backend sends it, though all ranks were killed. What a
# job before the backend left is in `persistent` too, and later jobs find what is on the node alone.
stop
place=$directory/by-the-clock
mkdir "$place" "$place/scratch" "$place/persistent"
configure 'persistent_interval = 1'
run 1 drained -1
serve
DUE=3 killed 4 killed 1
sent 3
DUE=6 run_slowly 6 left 4
sent 6
# The node's disk is lost, and the last version was one by the clock.
stop
remove "$place"/scratch/.ebbtide-node*
serve
run 7 drained 6
# The backend goes by the clock, and these jobs do not.
configure 'mode = async'
killed 8 killed 7
sent 8
# A version that is written again is not left to it: at the end of the job VELOC's files have the new bytes.
for rank in 0 1 2 3; do cp "$place/persistent/heat-$rank-8.dat" "$directory/old-$rank"; done
FROM=8 TURN=1 run 8 left 8
for rank in 0 1 2 3; do
  if cmp -s "$place/persistent/heat-$rank-8.dat" "$directory/old-$rank"; then fail "rank $rank's file has the old bytes"; fi
done
FOUND=1 run 9 drained 8

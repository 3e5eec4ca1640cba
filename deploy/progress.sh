# For the scripts beside it, which source it: what a long command does, seen from the log that it
# writes, and how scripts fail.

progress_pid=

# Prints `LABEL: NEWS` to standard error until end_progress, or until the script has ended: on a
# terminal one line that changes, elsewhere a line each 15 seconds. NEWS is the last count in the
# log, ninja's "[12/340]" or apt's percentage, and the time; or how much lies in a folder.
# Usage: begin_progress LABEL LOG-OR-FOLDER
begin_progress() {
  follow_log "$@" &
  progress_pid=$!
}

last_news() {
  if [ -d "$1" ]; then
    du -sm "$1" 2>/dev/null | sed -nE 's/^([0-9]+).*/\1 MB, /p'
  else
    tail -n 40 "$1" 2>/dev/null | sed -nE '
      s|^\[([0-9]+)/([0-9]+)\] .*|\1 of \2, |p
      s/^dlstatus:[^:]*:([0-9]+)[0-9.]*:.*/downloading \1%, /p
      s/^pmstatus:[^:]*:([0-9]+)[0-9.]*:.*/installing \1%, /p' | tail -n 1
  fi
}

follow_log() {
  local label=$1 log=$2 start=$SECONDS next=0 news seconds
  trap 'exit 0' TERM
  trap - EXIT
  while kill -0 $$ 2>/dev/null; do
    seconds=$((SECONDS - start))
    news=$(last_news "$log")
    news="$label: $news$(printf '%d:%02d' $((seconds / 60)) $((seconds % 60)))"
    if [ -t 2 ]; then
      printf '\r\033[K\033[2m%s\033[0m' "$news" >&2
    elif [ "$seconds" -ge "$next" ]; then
      next=$((seconds + ${STRATA_PROGRESS_S:-15}))
      printf '%s\n' "$news" >&2
    fi
    sleep 0.3
  done
}

end_progress() {
  [ -n "$progress_pid" ] || return 0
  kill "$progress_pid" 2>/dev/null || true
  wait "$progress_pid" 2>/dev/null || true
  progress_pid=
  [ ! -t 2 ] || printf '\r\033[K' >&2
}

# A sentence that says what failed and what to do, with the log's place if there is one.
fail() {
  end_progress
  echo "error: $1" >&2
  exit 1
}

# How many compilers may run at once: one a core and two more, as ninja has it, and no more than the
# free memory holds at 900 MB each (the largest file takes 834).
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(($(sed -nE 's/^MemAvailable: +([0-9]+) kB/\1/p' /proc/meminfo) / 900000))
  echo $((memory < 1 ? 1 : memory < cores + 2 ? memory : cores + 2))
}

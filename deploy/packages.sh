#!/usr/bin/env bash
# Installs the Debian packages that building and testing Strata needs; does nothing when all are there.
# Works as root or through sudo. Usage: deploy/packages.sh
set -euo pipefail
. "$(dirname "$0")/progress.sh"
packages=(
  g++ cmake ninja-build ccache pkg-config python3 python3-pip ca-certificates
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libssl-dev libpcre2-dev libutf8proc-dev
  libhwloc-dev libedit-dev libboost1.81-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
  fail "this is not Debian: there is no apt-get; install what matches ${packages[*]}, then build as CONTRIBUTING.md says"
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo)
  command -v sudo >/dev/null ||
    fail "packages are missing, and there is no sudo; run as root: apt-get install ${missing[*]}"
  sudo true || fail "packages are missing, and sudo refused; have somebody run: apt-get install ${missing[*]}"
fi

echo "packages: installing ${#missing[@]} of Debian's: ${missing[*]}" >&2
log=$(mktemp "${TMPDIR:-/tmp}/strata-packages.XXXXXX")
# apt-get stays in the foreground, where Ctrl-C reaches it.
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o APT::Status-Fd=1 "$@" >>"$log" 2>&1; }
begin_progress packages "$log"
trap end_progress EXIT
apt update ||
  fail "the lists of packages cannot be fetched; is there a network, and does /etc/apt/sources.list fit? (log: $log)"
apt install -y --no-install-recommends "${missing[@]}" ||
  fail "packages cannot be installed: $(sed -n 's/^E: //p' "$log" | head -n 1) (log: $log)"
rm -f "$log"

#!/usr/bin/env bash
# Installs the Debian packages that building and testing Strata needs; does nothing when all are there.
# Works as root or through sudo. Usage: deploy/packages.sh
set -euo pipefail
packages=(
  g++ cmake ninja-build ccache pkg-config python3 python3-pip ca-certificates
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libssl-dev libpcre2-dev libutf8proc-dev
  libhwloc-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "error: run as root or install sudo; missing: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing ${#missing[@]} Debian packages: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

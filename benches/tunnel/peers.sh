#!/usr/bin/env bash
# Puts the other VPNs that the bench compares with into target/peers, each from its registry. What cannot be had is left
# out, and so is its row in the tables.
set -uo pipefail
cd "$(dirname "$0")/../.."
. tests/needs
needs cargo cc /usr/include/stdio.h /etc/ssl/certs/ca-certificates.crt
((EUID)) && { echo "$0: only root can install Debian's packages: sudo $0" >&2; exit 1; }
into=$PWD/target/peers
mkdir -p "$into"

go_install() { # MODULE PROGRAM NAME: the program is called as the module's last part
    [[ -x $into/$3 ]] && return
    local work
    work=$(mktemp -d)
    GOBIN=$work GOFLAGS=-modcacherw go install "$1" && mv "$work/$2" "$into/$3"
    rm -rf "$work"
}

cargo_install() { # CRATE VERSION PROGRAM
    [[ -x $into/$3 ]] && return
    local work
    work=$(mktemp -d)
    cargo install --quiet --version "$2" --root "$work" "$1" && mv "$work/bin/$3" "$into/$3"
    rm -rf "$work"
}

packages=(wireguard-tools openvpn iperf3 ethtool)
command -v go >/dev/null || packages+=(golang-go)
DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}" >/dev/null
go_install golang.zx2c4.com/wireguard@v0.0.0-20250521234502-f333402bd9cb wireguard wireguard-go
go_install github.com/tailscale/wireguard-go@v0.0.0-20250716170648-1d0488a3d7da wireguard-go wireguard-go-tailscale
[[ -x $into/netstack ]] || (cd benches/sockets/netstack && GOFLAGS=-modcacherw go build -o "$into/netstack" .)
cargo_install onetun 0.3.10 onetun
cargo_install boringtun-cli 0.7.1 boringtun-cli
cargo_install gotatun-cli 0.10.2 gotatun
ls -l "$into"

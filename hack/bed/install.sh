# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: Debian's packages for both halves.

PACKAGES=(
	# the nodes, and what the images are made of
	runc nftables iptables openssl
	bash bind9-dnsutils busybox-static dash iperf netcat-openbsd wget
	# both, and the checks
	curl ethtool iproute2 iputils-ping jq patch procps util-linux
)
if has_system; then
	# the folder of OpenStack, and clients of what runs there
	PACKAGES+=(debootstrap mariadb-client openvswitch-switch ovn-common python3-openstackclient python3-octaviaclient)
elif [[ $KIND != sim ]]; then
	PACKAGES+=(
	# OpenStack: three APIs, served by uwsgi or by their own server, one database
	mariadb-server keystone neutron-api octavia-api
	octavia-driver-agent python3-ovn-octavia-provider uwsgi-plugin-python3
	python3-openstackclient python3-octaviaclient
	ovn-central ovn-host openvswitch-switch
	)
	[[ -z $AMPHORA ]] || PACKAGES+=(rabbitmq-server octavia-worker)
	[[ $KIND != ovs ]] || PACKAGES+=(rabbitmq-server iputils-arping)
fi

missing_packages() {
	local p
	for p in "${PACKAGES[@]}"; do
		[[ $(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || echo "$p"
	done
}

install_packages() {
	command -v apt-get >/dev/null ||
		die "no apt-get: the bed is made of Debian 12's packages; install these by hand: ${PACKAGES[*]}"
	command -v go >/dev/null || die "no Go: Kubernetes is built from its modules; install Go 1.26 or newer"
	local missing
	mapfile -t missing < <(missing_packages)
	((${#missing[@]})) || {
		say "all ${#PACKAGES[@]} packages are installed"
		return
	}
	((EUID == 0)) || die "not root; missing packages: ${missing[*]}"
	say "installing ${missing[*]}"
	forbid_services
	export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true
	apt-cache show ovn-central >/dev/null 2>&1 || apt-get -q update
	apt-get -q install -y --no-install-recommends \
		-o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold "${missing[@]}"
	say "installed"
}

# Packages start their services as they are installed, on the machine's own
# addresses. A policy-rc.d that exits with 101 forbids it; one that is there
# already is someone else's and stays.
forbid_services() {
	local policy=/usr/sbin/policy-rc.d
	[[ ! -e $policy ]] || return 0
	trap 'rm -f /usr/sbin/policy-rc.d' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
}

# What a machine must have, each with what is missing said plainly.
require_machine() {
	((EUID == 0)) || die "must run as root: namespaces, taps and mounts need it"
	((${#BED} <= 60)) || die "KURYR_BED is too long: paths of sockets may have 107 characters"
	case $BED/ in
	/etc/* | /opt/* | /usr/* | /var/lib/* | /var/log/*) die "KURYR_BED may not be below /etc, /opt, /usr, /var/lib or /var/log: a node lays its own files over those" ;;
	esac
	local missing
	mapfile -t missing < <(missing_packages)
	((${#missing[@]} == 0)) || die "run \`bed install\`; missing packages: ${missing[*]}"
	[[ -d $(dirname "$(dirname "$TRACK")") ]] || die "no control groups below /sys/fs/cgroup"
}

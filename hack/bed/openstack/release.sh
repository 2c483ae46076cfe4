# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: which release of OpenStack, and where its programs are. Zed is made of
# the machine's own packages (Debian 12). 2025.1 is Debian 13's: a folder with a Debian of
# its own, in which OpenStack, OVN and Open vSwitch run (inside.sh). Kubernetes, the nodes
# and the clients that `bed` itself uses are the machine's on both.

RELEASES=(zed 2025.1)
SYSTEM=$BED/system-$RELEASE
SYSTEM_SUITE=trixie
SYSTEM_PACKAGES=(
	mariadb-server keystone neutron-api octavia-api octavia-driver-agent
	python3-ovn-octavia-provider uwsgi-plugin-python3
	ovn-central ovn-host openvswitch-switch
	rabbitmq-server octavia-worker                                            # KURYR_BED_AMPHORA=1
	neutron-openvswitch-agent neutron-l3-agent iptables iputils-arping ethtool # KURYR_BED_CLOUD=ovs
)
SYSTEM_ROOM=3000 # MB; 2000 are used, and 700 more while packages are unpacked

# inside: what goes before a command of OpenStack, OVN or Open vSwitch.
inside=()
if has_system; then
	inside=(unshare --mount --propagation unchanged "$HERE/openstack/inside.sh" "$SYSTEM" "$BED")
fi

known_release() {
	[[ " ${RELEASES[*]} " == *" $RELEASE "* ]] ||
		die "KURYR_BED_RELEASE is one of: ${RELEASES[*]}; not $RELEASE"
}

# system_made: the folder is whole and of these packages.
system_made() { [[ $(cat "$SYSTEM/made" 2>/dev/null) == "${SYSTEM_PACKAGES[*]}" ]]; }

# mirror: the first of the machine's own mirrors of Debian that has the suite.
mirror() {
	local url tried=()
	while read -r url; do
		url=${url%/}
		if curl -fsSIL --max-time 20 -o /dev/null "$url/dists/$SYSTEM_SUITE/InRelease" 2>"$RUN/mirror"; then
			echo "$url"
			return
		fi
		tried+=("$url ($(tail -1 "$RUN/mirror"))")
	done < <(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | sort -u)
	die "no mirror in apt's sources has Debian's $SYSTEM_SUITE, which OpenStack $RELEASE is made of; tried: ${tried[*]:-none, run apt-get update}. Add one to /etc/apt/sources.list, or use KURYR_BED_RELEASE=zed"
}

# install_system makes the folder. Half of one is made anew.
install_system() {
	local new=$SYSTEM.new url free
	system_made && {
		say "OpenStack $RELEASE is in $SYSTEM"
		return
	}
	[[ -z $(daemons '*') ]] || die "the bed is up and its OpenStack is to be made anew: end it first, $HERE/bed down"
	not_mounted
	url=$(mirror) || exit 1 # before what is there goes
	rm -rf --one-file-system "$SYSTEM" "$new"
	free=$(df --output=avail -m "$BED" | tail -1)
	((free >= SYSTEM_ROOM)) ||
		die "OpenStack $RELEASE needs $SYSTEM_ROOM MB in $BED and there are $((free)): make room, set KURYR_BED to another disk, or use KURYR_BED_RELEASE=zed"
	say "making $SYSTEM from $url: some 3 minutes; log in $LOG/system.log"
	: >"$LOG/system.log"
	progress_begins "the base of Debian's $SYSTEM_SUITE"
	debootstrap --variant=minbase "$SYSTEM_SUITE" "$new" "$url" >>"$LOG/system.log" 2>&1 ||
		die "debootstrap failed: $(grep -m1 '^E:' "$LOG/system.log"); see $LOG/system.log, then run this again"
	progress_ends
	system_settings "$new"
	progress_begins "OpenStack $RELEASE: $(wc -w <<<"${SYSTEM_PACKAGES[*]}") packages and what they need"
	system_packages "$new" >>"$LOG/system.log" 2>&1 ||
		die "apt-get failed in $new: $(grep -m1 '^E:' "$LOG/system.log"); see $LOG/system.log, then run this again"
	progress_ends
	echo "${SYSTEM_PACKAGES[*]}" >"$new/made"
	mv "$new" "$SYSTEM"
	say "OpenStack $RELEASE is in $SYSTEM ($(du -sm "$SYSTEM" | cut -f1) MB)"
}

# system_settings FOLDER: no service starts, no documentation is unpacked, and apt reaches
# the mirror as the machine's does.
system_settings() {
	printf '#!/bin/sh\nexit 101\n' >"$1/usr/sbin/policy-rc.d"
	chmod 755 "$1/usr/sbin/policy-rc.d"
	printf 'path-exclude=/usr/share/%s/*\n' doc man locale info >"$1/etc/dpkg/dpkg.cfg.d/small"
	echo force-unsafe-io >>"$1/etc/dpkg/dpkg.cfg.d/small"
	apt-config dump | grep ^Acquire:: >"$1/etc/apt/apt.conf.d/machine" || true
	cp --dereference /etc/resolv.conf "$1/etc/resolv.conf"
	echo '127.0.0.1 localhost' >"$1/etc/hosts"
}

system_packages() { # FOLDER
	# With a /run of its own: packages make folders there.
	local run=(unshare --mount sh -c 'mount -t tmpfs tmpfs /run && exec "$@"' sh
		unshare --mount --propagation unchanged "$HERE/openstack/inside.sh" "$1" "$BED" env -u REQUESTS_CA_BUNDLE DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8)
	"${run[@]}" apt-get -q update &&
		"${run[@]}" apt-get -q install -y --no-install-recommends "${SYSTEM_PACKAGES[@]}" &&
		"${run[@]}" apt-get clean
}

# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by e2e-nested.sh: a virtual machine made of Debian's packages, with the
# kernel that Debian has for clouds and a file system that is all in memory.

NESTED=${KURYR_BED:-/var/tmp/kuryr-bed}/nested
# What runs here, and what of it goes into the virtual machine.
PACKAGES=(qemu-system-x86 busybox-static kmod iproute2 iputils-ping)
COMMANDS=(/bin/ip /bin/ping)
MODULES=(virtio_pci virtio_net 8021q macvlan veth bridge)

say() { printf '%(%H:%M:%S)T  %s\n' -1 "$*"; }
die() {
	say "ERROR: $*" >&2
	exit 1
}

missing_packages() {
	local p
	for p in "${PACKAGES[@]}"; do
		[[ $(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || echo "$p"
	done
}

install_packages() {
	local missing
	[[ $(uname -m) == x86_64 ]] || die "the virtual machine is made for x86-64 only, and this is $(uname -m)"
	command -v apt-get >/dev/null || die "no apt-get: the virtual machine is made of Debian 12's packages: ${PACKAGES[*]} linux-image-cloud-amd64"
	command -v go >/dev/null || die "no Go: install Go 1.26 or newer"
	((EUID == 0)) || die "must run as root, for packages and /dev/kvm"
	mapfile -t missing < <(missing_packages)
	((${#missing[@]})) || return 0
	say "installing ${missing[*]}"
	apt-cache show qemu-system-x86 linux-image-cloud-amd64 >/dev/null 2>&1 || apt-get -q update
	DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends \
		-o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold "${missing[@]}" ||
		die "apt-get cannot install ${missing[*]}"
}

# kernel_package: the newest of Debian's kernels for clouds, which is unpacked
# and not installed: this machine is to boot as before.
kernel_package() {
	apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '/Depends: linux-image/ {print $2; exit}'
}

unpack_kernel() {
	local package
	package=$(kernel_package)
	[[ -n $package ]] || { apt-get -q update && package=$(kernel_package); }
	[[ -n $package ]] || die "apt knows no linux-image-cloud-amd64"
	KERNEL=$NESTED/$package
	[[ -e $KERNEL/unpacked ]] || {
		say "fetching $package"
		rm -rf "$KERNEL" && mkdir -p "$KERNEL"
		# As root: apt's own user cannot write here, and says so each time.
		(cd "$KERNEL" && apt-get -q -o APT::Sandbox::User=root download "$package") || die "apt-get cannot fetch $package"
		dpkg-deb --extract "$KERNEL"/*.deb "$KERNEL"
		rm "$KERNEL"/*.deb
		RELEASE=$(cd "$KERNEL/lib/modules" && echo *)
		depmod --basedir "$KERNEL" "$RELEASE"
		touch "$KERNEL/unpacked"
	}
	RELEASE=$(cd "$KERNEL/lib/modules" && echo *)
}

# make_system: the file system, in a folder, without anything to do.
make_system() {
	local root=$NESTED/root command applet lib module n=10
	rm -rf "$root"
	mkdir -p "$root"/{bin,dev,proc,sys,tmp,run,modules,lib64}
	cp "$HERE/e2e-nested/init" "$root/init"
	cp "$(command -v busybox)" "$root/bin/busybox"
	for applet in $(busybox --list); do ln -s busybox "$root/bin/$applet" 2>/dev/null || true; done
	for command in "${COMMANDS[@]}"; do
		rm -f "$root/bin/$(basename "$command")"
		cp -L "$command" "$root/bin/"
		for lib in $(ldd "$command" | grep -o '/[^ ]*'); do
			mkdir -p "$root$(dirname "$lib")"
			cp -L "$lib" "$root$lib"
		done
	done
	for module in $(load_order); do
		cp "$module" "$root/modules/$((n++))-$(basename "$module")"
	done
}
load_order() {
	local module
	for module in "${MODULES[@]}"; do
		modprobe --dirname "$KERNEL" --set-version "$RELEASE" --show-depends "$module" || die "the kernel has no module $module"
	done | awk '$1 == "insmod" && !seen[$2]++ {print $2}'
}

# pack_system JOB [FOLDER]: the file system as an archive for the kernel, with
# what it has to run and the files of a folder, which lie in / there.
pack_system() {
	local extra=$NESTED/extra
	rm -rf "$extra" && mkdir "$extra"
	printf '%s\n' "$1" >"$extra/job"
	[[ -z ${2:-} ]] || cp "$2"/* "$extra/"
	{ archive "$NESTED/root"; archive "$extra"; } >"$NESTED/system.cpio"
}
archive() { (cd "$1" && find . | busybox cpio -o -H newc 2>/dev/null); } # FOLDER

# boot SECONDS LOG [QEMU-OPTION...]: runs the virtual machine to its end and
# fails if its job does. An emulated one gets ten times as long.
boot() {
	local seconds=$1 log=$2 rc
	shift 2
	[[ $ACCEL == kvm ]] || seconds=$((seconds * 10))
	machine "$seconds" "$@" | sed -u 's/\r$//' | tee "$log" && rc=0 || rc=$?
	((rc == 0)) || die "the virtual machine did not end by itself within $seconds s; its console: $log"
	rc=$(tr -d '\r\n' <"$NESTED/result")
	[[ $rc == "exit 0" ]] || die "in the virtual machine: ${rc:-no result}; its console: $log"
}

# machine SECONDS [QEMU-OPTION...]
#
# Where it is emulated, its time is that of what it executes: by this machine's
# clock, which may leap for it, it would take waiting for stalls of its kernel. One
# without a network even passes over all idle time.
machine() {
	local seconds=$1 how=(-smp 2)
	shift
	if [[ $ACCEL == tcg ]]; then
		how=(-icount "shift=2,sleep=off")
		(($# == 0)) || how=(-icount "shift=auto")
	fi
	rm -f "$NESTED/result"
	# In the foreground: what ends the script's process group ends the machine, too.
	timeout --foreground --kill-after=5 "$seconds" qemu-system-x86_64 -accel "$ACCEL" -cpu max "${how[@]}" -m 1024 \
		-nodefaults -no-user-config -display none -no-reboot \
		-kernel "$KERNEL"/boot/vmlinuz-* -initrd "$NESTED/system.cpio" \
		-append "console=ttyS0 quiet panic=-1 oops=panic rcupdate.rcu_expedited=1" \
		-serial stdio -serial "file:$NESTED/result" "$@" </dev/null
}

# choose_accel: /dev/kvm may open and run nothing, on a machine that is virtual
# itself; only trying tells.
choose_accel() {
	[[ -z ${ACCEL:-} ]] || return 0
	ACCEL=tcg
	: 2>/dev/null <>/dev/kvm || {
		say "no /dev/kvm: the machine is emulated, which is slow"
		return 0
	}
	ACCEL=kvm
	pack_system true
	machine 15 >/dev/null 2>&1 && grep -q "exit 0" "$NESTED/result" || {
		ACCEL=tcg
		say "/dev/kvm opens, and a machine does not start with it within 15 s: it is emulated, which is slow"
	}
}

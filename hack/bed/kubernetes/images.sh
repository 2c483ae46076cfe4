# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: the images that a node and upstream's tests ask for, under
# the names that they ask by, since nothing is pulled here. They are made of what
# was built and of Debian's own programs.

E2E_IMAGES=registry.k8s.io/e2e-test-images
COREDNS_IMAGE=registry.k8s.io/coredns/coredns:v1.13.1

pack_images() {
	local work
	work=$(mktemp -d "$BED/images.XXXXXX")
	pack_pause "$work/pause"
	pack_busybox "$work/busybox"
	pack_agnhost "$work/agnhost"
	pack_coredns "$work/coredns"
	pack_boom_server "$work/boom-server"
	rm -rf "$work"
}

# pack NAME ROOT ENTRYPOINT CMD TAG...
pack() {
	local name=$1 root=$2 entrypoint=$3 cmd=$4
	shift 4
	"$BIN/packimage" -root "$root" -out "$IMAGES/$name.tar" -entrypoint "$entrypoint" -cmd "$cmd" "$@"
}

pack_pause() {
	mkdir "$1"
	cp "$BIN/pause" "$1/pause"
	pack pause "$1" /pause "" registry.k8s.io/pause:3.10.2
}

pack_coredns() {
	mkdir "$1"
	cp "$BIN/coredns" "$1/coredns"
	pack coredns "$1" /coredns "" $COREDNS_IMAGE
}

# The server of a test of connection tracking: it sends packets outside the window.
pack_boom_server() {
	mkdir "$1"
	cp "$BIN/regression-issue-74839" "$1/"
	pack boom-server "$1" /regression-issue-74839 "" $E2E_IMAGES/regression-issue-74839:1.5
}

pack_busybox() {
	file_system "$1"
	pack busybox "$1" "" sh $E2E_IMAGES/busybox:1.37.0-2
}

# agnhost also stands in for images of which the tests want little: nginx is some
# server on port 80, glibc-dns-testing a shell with dig and getent.
pack_agnhost() {
	local root=$1 lib libs upstream
	file_system "$root"
	put "$root" bash curl dash dig getent ip iperf nc ss wget
	# busybox's nc and ip lack options that the tests use, and its shell runs its
	# own applets before anything in the PATH: so Debian's, with dash as the shell.
	# Debian's busybox ends with a segmentation fault at `wget -T`, static or not: the
	# option is built out, but still parsed. GNU wget tries twenty times if it may.
	rm "$root"/bin/{ip,nc,wget}
	echo 'tries = 1' >"$root/etc/wgetrc"
	ln -sf ../usr/bin/dash "$root/bin/sh"
	# Name resolution is loaded at run time: ldd does not show it.
	libs=$(dirname "$(ldconfig -p | awk '/libc\.so\.6 / {print $NF; exit}')")
	for lib in "$libs"/libnss_{dns,files}.so.2; do install -D "$lib" "$root$lib"; done
	cp "$BIN/agnhost" "$root/agnhost"
	ln -s agnhost "$root/agnhost-2"
	mkdir "$root/uploads"
	# Its `porter` serves TLS with a certificate that upstream's image carries.
	upstream=$(go_in list -m -f '{{.Dir}}' k8s.io/kubernetes)
	install -m 644 "$upstream"/test/images/agnhost/porter/localhost.{crt,key} "$root/"
	pack nginx "$root" /agnhost "test-webserver --port=80" $E2E_IMAGES/nginx:{1.27.0-2,1.28.0-2}
	cp "$BIN/coredns" "$root/coredns" # the DNS server of tests, as in upstream's image
	pack agnhost "$root" /agnhost pause $E2E_IMAGES/agnhost:{2.55,2.66.1} $E2E_IMAGES/glibc-dns-testing:2.1.1
}

# file_system ROOT: folders, users, and busybox under the name of every command it has.
file_system() {
	local root=$1 applet
	mkdir -p "$root"/{bin,usr/bin,etc,proc,sys,dev,root,tmp,run,var/run}
	chmod 1777 "$root/tmp"
	for applet in $(busybox --list); do ln -sf busybox "$root/bin/$applet"; done
	cp --remove-destination "$(command -v busybox)" "$root/bin/busybox"
	echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
	echo 'root:x:0:' >"$root/etc/group"
	echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
}

# put ROOT COMMAND...: programs of this machine with the libraries they load.
put() {
	local root=$1 command file lib
	shift
	for command; do
		file=$(PATH=/usr/sbin:/usr/bin:/sbin:/bin command -v "$command") || die "no $command here: run \`bed install\`"
		install -D "$file" "$root/usr/bin/$command"
		while read -r lib; do
			install -D "$lib" "$root$lib"
		done < <(ldd "$file" 2>/dev/null | grep -o '/[^ ]*')
	done
}

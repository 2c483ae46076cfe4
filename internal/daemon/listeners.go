// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/kuryr-go/kuryr/internal/cni"
)

// freeOnNode refuses host ports of e that something on the node itself listens on: it
// would not be asked any more, the daemon's own /livez and sshd among it. The scheduler knows only of
// what pods declare, and pods with spec.nodeName do not even come by it.
func (d *Daemon) freeOnNode(e entry) error {
	for _, p := range e.HostPorts {
		for _, a := range e.Port.Addresses {
			if v6 := a.Prefix.Addr().Unmap().Is6(); d.listens(p, v6) {
				return types.NewError(cni.CodeHostPort, fmt.Sprintf("something on the node itself listens on %s", p),
					"a pod's host port would take it away from there; give the pod another hostPort, or see by ss -lnp, on the node, what has it")
			}
		}
	}
	return nil
}

func (p hostPortRecord) String() string {
	at := "all its addresses"
	if p.Address.IsValid() {
		at = p.Address.String()
	}
	return fmt.Sprintf("%s port %d of %s", strings.ToUpper(p.Protocol), p.Port, at)
}

// listens reports whether a socket of the node has the port, by binding to it for a
// moment: the kernel knows best which sockets would meet. What cannot be tried is free.
func listens(p hostPortRecord, v6 bool) bool {
	kind, protocol := unix.SOCK_STREAM, unix.IPPROTO_TCP
	switch strings.ToUpper(p.Protocol) {
	case "UDP":
		kind, protocol = unix.SOCK_DGRAM, unix.IPPROTO_UDP
	case "SCTP":
		protocol = unix.IPPROTO_SCTP
	}
	if p.Address.IsValid() && p.Address.Unmap().Is6() != v6 {
		return false
	}
	family := unix.AF_INET
	if v6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	if v6 { // IPv4 is asked for by itself
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if kind == unix.SOCK_STREAM { // connections of the port that are not listened for any more do not count
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	return errors.Is(unix.Bind(fd, sockaddr(p.Address, p.Port, v6)), unix.EADDRINUSE)
}

func sockaddr(a netip.Addr, port uint16, v6 bool) unix.Sockaddr {
	if v6 {
		at := &unix.SockaddrInet6{Port: int(port)}
		if a.IsValid() {
			at.Addr = a.As16()
		}
		return at
	}
	at := &unix.SockaddrInet4{Port: int(port)}
	if a.IsValid() {
		at.Addr = a.Unmap().As4()
	}
	return at
}

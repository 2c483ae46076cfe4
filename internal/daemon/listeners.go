// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kuryr-go/kuryr/internal/cni"
)

// freeOnNode refuses host ports of e that a program on the node listens on: that program would no
// longer get connections, the daemon's own /livez and sshd included. The scheduler knows only the
// ports that pods declare, and pods with spec.nodeName bypass it.
func (d *Daemon) freeOnNode(e entry) error {
	for _, p := range e.HostPorts {
		for _, a := range e.Port.Addresses {
			if v6 := a.Prefix.Addr().Unmap().Is6(); d.listens(p, v6) {
				return types.NewError(cni.CodeHostPort, fmt.Sprintf("something on the node itself listens on %s", p),
					"a pod's host port would take its traffic; give the pod another hostPort, or find the process with ss -lnp on the node")
			}
		}
	}
	return nil
}

// listens reports whether a socket of the node accepts any client at the port. It binds to the
// port for a moment, because the kernel knows best which sockets conflict. Only on a conflict it
// examines the sockets. A port that cannot be tried counts as free.
func listens(p cni.HostPort, v6 bool) bool {
	kind, protocol := unix.SOCK_STREAM, unix.IPPROTO_TCP
	switch p.Protocol {
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
	if v6 { // IPv4 has a call of its own
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	// Connections of a port without a listener do not count.
	if kind == unix.SOCK_STREAM {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if !errors.Is(unix.Bind(fd, sockaddr(p.Address, p.Port, v6)), unix.EADDRINUSE) {
		return false
	}
	return protocol == unix.IPPROTO_SCTP || waits(unix.AF_INET6, protocol, p, v6) || !v6 && waits(unix.AF_INET, protocol, p, v6)
}

// States of sockets that accept any client. An unconnected UDP socket has the first one.
const stateClosed, stateListening = 7, 10

// waits reports whether a TCP or UDP socket of that family accepts any client at the port. A
// connected socket does not count: the kernel tracks its connection, so a pod's host port of the same
// number takes nothing from it. Sockets that cannot be examined count.
func waits(family uint8, protocol int, p cni.HostPort, v6 bool) bool {
	list, state := netlink.SocketDiagTCP, uint8(stateListening)
	if protocol == unix.IPPROTO_UDP {
		list, state = netlink.SocketDiagUDP, stateClosed
	}
	sockets, err := list(family)
	return err != nil || slices.ContainsFunc(sockets, func(s *netlink.Socket) bool {
		return s.ID.SourcePort == p.Port && s.State == state && meets(s.ID.Source, p.Address, v6)
	})
}

// meets reports whether a socket at an address gets packets for the requested address, or for any
// address of the family if none is requested.
func meets(socket net.IP, asked netip.Addr, v6 bool) bool {
	at, _ := netip.AddrFromSlice(socket)
	at, asked = at.Unmap(), asked.Unmap()
	if at.IsUnspecified() { // [::] is usually for both families
		return true
	}
	return at.Is6() == v6 && (!asked.IsValid() || asked.IsUnspecified() || asked == at)
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

// maxConnections limits the connections to health and to metrics, each, and to all health check
// ports of Services together. A connection takes some 20 KiB, and every client that reaches the
// node may open thousands.
const maxConnections = 100

// connections counts the connections of one or more HTTP servers. One more than allowed ends the
// oldest. If it had to wait instead, the holder of the others would block the kubelet's probes, and
// the kubelet would end the daemon. The zero value is ready.
type connections struct {
	mu   sync.Mutex
	open []net.Conn // the oldest first
}

// server returns a server whose connections are counted here. Its timeouts are short, because its
// answers are.
func (c *connections) server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ConnState: c.note,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
	}
}

func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open = append(c.open, conn)
		if len(c.open) > maxConnections {
			_ = c.open[0].Close()
			c.open = slices.Delete(c.open, 0, 1)
		}
	case http.StateActive, http.StateIdle: // already counted
	case http.StateClosed, http.StateHijacked:
		if i := slices.Index(c.open, conn); i >= 0 {
			c.open = slices.Delete(c.open, i, i+1)
		}
	}
}

// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nft_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kuryr-go/kuryr/internal/nodetest"
)

func TestMain(m *testing.M) { nodetest.Main(m) }

// host is a network namespace; nil is the node's.
type host struct{ file *os.File }

func newHost(t testing.TB) *host {
	t.Helper()
	made := make(chan *os.File, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			t.Error(err)
		}
		made <- f
	}()
	h := &host{<-made}
	t.Cleanup(func() { _ = h.file.Close() })
	return h
}

func (h *host) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.file.Fd()) }

// do runs f on a thread of the host.
func (h *host) do(f func() error) error {
	if h == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(int(h.file.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// run runs a line of shell on the host.
func (h *host) run(t testing.TB, line string) string {
	t.Helper()
	var out []byte
	if err := h.do(func() (err error) {
		out, err = exec.Command("sh", "-ec", line).CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Addresses. The node is 192.0.2.1 to clients and 198.51.100.1 to the cloud.
const (
	client4, client6 = "192.0.2.2", "fd01::2"
	node4, node6     = "192.0.2.1", "fd01::1"
	inner4, inner6   = "198.51.100.1", "fd02::1"
	vip4, vip6       = "10.96.0.10", "fd96::10"
	vip4b            = "10.96.0.11"
	external4        = "203.0.113.5"
	external6        = "2001:db8::5"
)

// site is a client, the node and the cloud, in this order behind each other. In
// the cloud a server at each VIP tells whom it sees.
type site struct{ client, node, cloud *host }

func newSite(t testing.TB) site {
	t.Helper()
	nodetest.Need(t)
	s := site{client: newHost(t), cloud: newHost(t)}
	s.node.run(t, "ip link set lo up; sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	for dev, to := range map[string]*host{"to-client": s.client, "to-cloud": s.cloud} {
		s.node.run(t, fmt.Sprintf("ip link add %s type veth peer name eth0 netns %s; ip link set %s up", dev, to.path(), dev))
		t.Cleanup(func() { _ = exec.Command("ip", "link", "del", dev).Run() })
		to.run(t, "ip link set lo up; ip link set eth0 up")
	}
	s.node.run(t, "ip addr add 192.0.2.1/24 dev to-client; ip addr add fd01::1/64 dev to-client nodad;"+
		"ip addr add 198.51.100.1/24 dev to-cloud; ip addr add fd02::1/64 dev to-cloud nodad;"+
		"ip route add 10.96.0.0/16 via 198.51.100.2; ip route add fd96::/64 via fd02::2;"+
		"ip route add default via 198.51.100.2; ip route add default via fd02::2")
	s.client.run(t, "ip addr add 192.0.2.2/24 dev eth0; ip addr add fd01::2/64 dev eth0 nodad;"+
		"ip route add default via 192.0.2.1; ip route add default via fd01::1")
	s.cloud.run(t, "ip addr add 198.51.100.2/24 dev eth0; ip addr add fd02::2/64 dev eth0 nodad;"+
		"ip addr add 10.96.0.10/32 dev lo; ip addr add 10.96.0.11/32 dev lo; ip addr add fd96::10/128 dev lo nodad;"+
		"ip route add default via 198.51.100.1; ip route add default via fd02::1")
	for _, vip := range []string{vip4, vip4b, vip6} {
		serveOn(t, s.cloud, netip.AddrPortFrom(netip.MustParseAddr(vip), 80))
	}
	return s
}

// serveOn answers at an address of a host with the address and that of whom it sees.
func serveOn(t testing.TB, h *host, at netip.AddrPort) {
	t.Helper()
	if err := h.do(func() error {
		tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = tcp.Close() })
		udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = udp.Close() })
		go serveTCP(tcp, at)
		go serveUDP(udp, at)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func serveTCP(l *net.TCPListener, at netip.AddrPort) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for b := make([]byte, 64); ; {
				if _, err := c.Read(b); err != nil {
					return
				}
				fmt.Fprintf(c, "%s sees %s", at.Addr(), c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr())
			}
		}()
	}
}

func serveUDP(c *net.UDPConn, at netip.AddrPort) {
	for b := make([]byte, 64); ; {
		_, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		_, _ = c.WriteToUDPAddrPort(fmt.Appendf(nil, "%s sees %s", at.Addr(), from.Addr()), from)
	}
}

// dial opens a connection from a host. It goes with the test.
func (h *host) dial(t testing.TB, patience time.Duration, network, ip string, port int) (net.Conn, error) {
	t.Helper()
	var c net.Conn
	err := h.do(func() (err error) {
		d := net.Dialer{Timeout: patience}
		c, err = d.DialContext(context.Background(), network, net.JoinHostPort(ip, fmt.Sprint(port)))
		return err
	})
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// How long an answer is waited for: one that has to come, and one that must not.
const patient, brief = 10 * time.Second, 300 * time.Millisecond

// exchange asks on a connection; "none" is no answer.
func exchange(c net.Conn, patience time.Duration) string {
	for end := time.Now().Add(patience); time.Now().Before(end); { // a datagram may be lost, the first to an address above all
		_ = c.SetDeadline(time.Now().Add(brief))
		b := make([]byte, 128)
		if _, err := c.Write([]byte("?")); err != nil {
			time.Sleep(brief / 10) // refused, so far
			continue
		}
		if n, err := c.Read(b); err == nil {
			return string(b[:n])
		}
	}
	return "none"
}

// ask connects and asks; "none" is no answer.
func (h *host) ask(t testing.TB, patience time.Duration, network, ip string, port int) string {
	t.Helper()
	c, err := h.dial(t, patience, network, ip, port)
	if err != nil {
		return "none"
	}
	defer c.Close()
	return exchange(c, patience)
}

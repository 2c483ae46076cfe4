// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kuryr-go/kuryr/internal/nodetest"
	"github.com/kuryr-go/kuryr/internal/plug"
)

func TestMain(m *testing.M) { nodetest.Main(m) }

// namespace is a pod's network namespace.
type namespace struct{ path string }

// newNamespace makes a namespace, which ends with the test.
func newNamespace(t testing.TB) namespace {
	t.Helper()
	nodetest.Need(t)
	made := make(chan *os.File, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			t.Error(err)
		}
		made <- f
	}()
	f := <-made
	t.Cleanup(func() { _ = f.Close() })
	return namespace{fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())}
}

// do runs f on a thread inside the namespace.
func (n namespace) do(t testing.TB, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		fd, err := unix.Open(n.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("in namespace %s: %v", n.path, err)
	}
}

// run runs a command inside the namespace.
func (n namespace) run(t testing.TB, command ...string) string {
	t.Helper()
	var out []byte
	n.do(t, func() (err error) {
		out, err = exec.Command(command[0], command[1:]...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
		}
		return err
	})
	return string(out)
}

// sh runs a command on the node.
func sh(t testing.TB, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func commandOutput(command ...string) ([]byte, error) {
	return exec.Command(command[0], command[1:]...).CombinedOutput()
}

// hasDevice reports whether the node has a device of that name.
func hasDevice(t testing.TB, name string) bool {
	t.Helper()
	_, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if err != nil && !errors.As(err, &missing) {
		t.Fatal(err)
	}
	return err == nil
}

// pod returns the n-th port of a test, as it is plugged into ns.
func pod(t testing.TB, typ string, n int, ns namespace) plug.Interface {
	t.Helper()
	id := fmt.Sprintf("%08x-%02x00-4000-8000-00000000cafe", n+1, n%256)
	t.Cleanup(func() {
		if l, err := netlink.LinkByName(plug.HostDevice(id)); err == nil {
			_ = netlink.LinkDel(l)
		}
	})
	return plug.Interface{
		PortID:      id,
		Type:        typ,
		ContainerID: fmt.Sprintf("c%063x", n+1),
		Netns:       ns.path,
		Name:        "eth0",
		MAC:         net.HardwareAddr{0xfa, 0x16, 0x3e, 0, byte(n >> 8), byte(n)},
		MTU:         1442,
		Addresses: []plug.Address{
			{Prefix: netip.MustParsePrefix(fmt.Sprintf("10.7.%d.%d/16", n/250, n%250+2)), Gateway: netip.MustParseAddr("10.7.0.1")},
			{Prefix: netip.MustParsePrefix(fmt.Sprintf("fd07::%x/64", n+2)), Gateway: netip.MustParseAddr("fd07::1")},
		},
		Routes:  []plug.Route{{Destination: netip.MustParsePrefix("10.96.0.0/12"), Gateway: netip.MustParseAddr("10.7.0.9")}},
		Default: true,
		Pod:     fmt.Sprintf("default/pod-%d", n),
	}
}

// addr returns the k-th address of i.
func addr(i plug.Interface, k int) string { return i.Addresses[k].Prefix.Addr().String() }

func mustPlug(t testing.TB, d plug.Driver, i plug.Interface) {
	t.Helper()
	if err := d.Plug(t.Context(), i); err != nil {
		t.Fatalf("Plug(%s) = %v", i.PortID, err)
	}
}

func mustUnplug(t testing.TB, d plug.Driver, i plug.Interface) {
	t.Helper()
	if err := d.Unplug(t.Context(), i); err != nil {
		t.Fatalf("Unplug(%s) = %v", i.PortID, err)
	}
}

func mustCheck(t testing.TB, d plug.Driver, i plug.Interface) {
	t.Helper()
	if err := d.Check(t.Context(), i); err != nil {
		t.Fatalf("Check(%s) = %v", i.PortID, err)
	}
}

func driver(t testing.TB, s *plug.Set, typ string) plug.Driver {
	t.Helper()
	t.Cleanup(s.Close)
	d, err := s.Driver(typ)
	if err != nil {
		t.Fatalf("Driver(%q) = %v", typ, err)
	}
	return d
}

// ping requires one answer within 5 seconds: first packets may be lost to neighbour discovery.
func ping(t testing.TB, from namespace, to string) {
	t.Helper()
	if _, err := exec.LookPath("ping"); err != nil {
		t.Log("ping is not installed: left out")
		return
	}
	from.run(t, "ping", "-n", "-c1", "-i0.2", "-w5", to)
}

// transfer sends some data by TCP from one namespace to an address in another.
func transfer(t testing.TB, from, to namespace, address string) {
	t.Helper()
	const size = 1 << 20
	var l net.Listener
	to.do(t, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(address, "0"))
		return err
	})
	defer func() { _ = l.Close() }()
	got := make(chan int64, 1)
	go func() {
		var n int64
		if c, err := l.Accept(); err == nil {
			n, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
		got <- n
	}()
	from.do(t, func() error {
		c, err := net.DialTimeout("tcp", l.Addr().String(), 10*time.Second)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, err = c.Write(make([]byte, size))
		return err
	})
	if n := <-got; n != size {
		t.Fatalf("%d bytes of %d arrived", n, size)
	}
}

// script writes an executable and returns its folder.
func script(t testing.TB, folder, name, text string) {
	t.Helper()
	path := filepath.Join(folder, name)
	// A shell writes the file. A file that this process has opened for writing cannot be run
	// while a child that was forked meanwhile still holds it.
	cmd := exec.Command("sh", "-c", `cat >"$1" && chmod 755 "$1"`, "sh", path)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("writing %s: %v: %s", path, err, out)
	}
}

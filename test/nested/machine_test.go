// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nested

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kuryr-go/kuryr/internal/plug"
)

// ready is printed once the pods can be reached.
const ready = "the pods are plugged"

// TestInTheVirtualMachine is the machine's part: it plugs the pods of the plan in
// $KURYR_NESTED_PLAN, has them reach each other and the targets, and serves until
// it is told to end.
func TestInTheVirtualMachine(t *testing.T) {
	p := readPlan(t)
	configure(t, p.Own)
	set := plug.New(plug.Config{}) // finds the interface by the default route
	defer set.Close()
	driver, err := set.Driver("vlan")
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{}, len(p.Pods))
	var pods []sandbox
	for k := range p.Pods {
		s := newSandbox(t)
		plugPod(t, driver, p.iface(t, k, s.path()))
		s.serve(t, end)
		pods = append(pods, s)
	}
	fmt.Println(ready)
	reachAll(t, p, pods)
	select {
	case <-end:
	case <-time.After(5 * time.Minute):
		t.Error("nobody has told the virtual machine to end")
	}
	for k := range p.Pods {
		if err := driver.Unplug(t.Context(), p.iface(t, k, "")); err != nil {
			t.Errorf("Unplug = %v", err)
		}
		if out, _ := pods[k].run("ip", "-o", "link"); strings.Contains(out, "eth0") {
			t.Errorf("left in the sandbox: %s", out)
		}
	}
}

func readPlan(t *testing.T) plan {
	t.Helper()
	path := os.Getenv("KURYR_NESTED_PLAN")
	if path == "" {
		t.Skip("SKIPPED: not in the virtual machine that TestTrunk starts")
	}
	var p plan
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// configure gives the machine's interface what its port has.
func configure(t *testing.T, own port) {
	t.Helper()
	for _, command := range []string{
		"link set eth0 mtu " + fmt.Sprint(own.MTU) + " up",
		"address add " + own.Address.String() + " dev eth0",
		"route add default via " + own.Gateway.String(),
	} {
		if out, err := run(append([]string{"ip"}, strings.Fields(command)...)...); err != nil {
			t.Fatalf("ip %s: %v: %s", command, err, out)
		}
	}
}

func plugPod(t *testing.T, driver plug.Driver, i plug.Interface) {
	t.Helper()
	started := time.Now()
	if err := driver.Plug(t.Context(), i); err != nil {
		t.Fatalf("Plug = %v", err)
	}
	t.Logf("plugged VLAN %d in %s", i.VLANID, time.Since(started).Round(time.Microsecond))
	if err := driver.Check(t.Context(), i); err != nil {
		t.Fatalf("Check = %v", err)
	}
}

// reachAll has the pods, and the machine, reach everything.
func reachAll(t *testing.T, p plan, pods []sandbox) {
	own := p.Own.Address.Addr().String()
	for k, s := range pods {
		for other, port := range p.Pods {
			if other != k {
				reach(t, fmt.Sprintf("pod %d to pod %d", k, other), s.run, port.Address.Addr().String())
			}
		}
		reach(t, fmt.Sprintf("pod %d to its node", k), s.run, own)
		reach(t, fmt.Sprintf("the node to pod %d", k), run, p.Pods[k].Address.Addr().String())
		for _, target := range append([]string{p.Pods[k].Gateway.String()}, p.Targets...) {
			reach(t, fmt.Sprintf("pod %d to %s", k, target), s.run, target)
		}
		err := s.enter(func() error { // full frames
			return transfer(net.JoinHostPort(p.Pods[(k+1)%len(pods)].Address.Addr().String(), fmt.Sprint(sinkPort)))
		})
		if err != nil {
			t.Errorf("TCP from pod %d to the next: %v", k, err)
			continue
		}
		t.Logf("pod %d to the next: %d bytes by TCP", k, transferSize)
	}
}

// reach pings for up to 20 s: first packets may be lost while addresses are resolved.
func reach(t *testing.T, what string, run func(...string) (string, error), to string) {
	t.Helper()
	out, err := run("ping", "-n", "-c1", "-i0.5", "-w20", to)
	if err != nil {
		t.Errorf("%s (%s): %v: %s", what, to, err, out)
		return
	}
	t.Logf("%s: answered", what)
}

func run(command ...string) (string, error) {
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	return string(out), err
}

const transferSize = 256 << 10

// transfer sends some data and wants to be told that all of it has arrived.
func transfer(to string) error {
	c, err := net.DialTimeout("tcp", to, 20*time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(make([]byte, transferSize)); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	answer, err := io.ReadAll(c)
	if err == nil && string(answer) != fmt.Sprint(transferSize) {
		err = fmt.Errorf("%s has got %q bytes of %d", to, answer, transferSize)
	}
	return err
}

// sandbox is a pod's network namespace.
type sandbox struct{ file *os.File }

func newSandbox(t *testing.T) sandbox {
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
	s := sandbox{<-made}
	t.Cleanup(func() { _ = s.file.Close() })
	return s
}

func (s sandbox) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.file.Fd()) }

// enter runs f on a thread inside.
func (s sandbox) enter(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func (s sandbox) do(t *testing.T, f func() error) {
	t.Helper()
	if err := s.enter(f); err != nil {
		t.Errorf("in the sandbox: %v", err)
	}
}

func (s sandbox) run(command ...string) (out string, err error) {
	err = s.enter(func() (err error) {
		out, err = run(command...)
		return err
	})
	return out, err
}

// serve listens on the pod's ports until the test ends.
func (s sandbox) serve(t *testing.T, end chan<- struct{}) {
	t.Helper()
	s.listen(t, endPort, func(net.Conn) {
		select {
		case end <- struct{}{}:
		default:
		}
	})
	s.listen(t, sinkPort, func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		_, _ = fmt.Fprint(c, n)
	})
}

func (s sandbox) listen(t *testing.T, number int, handle func(net.Conn)) {
	t.Helper()
	s.do(t, func() error {
		l, err := net.Listen("tcp4", fmt.Sprintf(":%d", number))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer func() { _ = c.Close() }()
					handle(c)
				}()
			}
		}()
		return nil
	})
}

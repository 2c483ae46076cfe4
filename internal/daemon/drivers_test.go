// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/nodetest"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// CNI_ARGS as in the MidoNet document, including its line continuations, and the same with
// semicolons. The document gives no MAC address.
var documented = []string{
	"K8S_POD_NAMESPACE=default;\\\n    K8S_POD_NAME=nginx-app-722l8;\\\n" +
		"    K8S_POD_INFRA_CONTAINER_ID=8ceb00926acf251b34d70065a6158370953ab909b0745f5f4647ee6b9ec5c250;\\\n" +
		"    PORT_UUID=" + portA + ",\\\n    IPV4=10.0.0.15/16,\\\n    GW=10.0.0.1,\\\n    PORT_TYPE=%s",
	"K8S_POD_NAMESPACE=default;K8S_POD_NAME=nginx-app-722l8;" +
		"PORT_UUID=" + portA + ",    IPV4=10.0.0.15/16,    GW=10.0.0.1,    PORT_TYPE=%s",
	"K8S_POD_NAMESPACE=default;K8S_POD_NAME=nginx-app-722l8;PORT_UUID=" + portA + ";IPV4=10.0.0.15/16;GW=10.0.0.1;PORT_TYPE=%s",
	"PORT_UUID=" + portA + ";IPV4=10.0.0.15/16;GW=10.0.0.1;PORT_TYPE=%s",
}

// From the executable to the device in the sandbox, with a node's real drivers and without any
// API.
func TestPortOfTheDocumentIsPlugged(t *testing.T) {
	if !nodetest.Inside(t) {
		return
	}
	n := newNode(t)
	n.api.setDown(true)
	bound := n.realDrivers()
	n.startAnyhow()
	for _, typ := range []string{"midonet", "bridge"} {
		for k, args := range documented {
			t.Run(fmt.Sprint(typ, k), func(t *testing.T) {
				netns := newSandbox(t)
				call := func(command, v, more string) (string, error) {
					return execute(t, conf(n, v, more), append(env(command, "c1", netns), "CNI_ARGS="+fmt.Sprintf(args, typ))...)
				}
				first, err := call("ADD", "1.0.0", "")
				if err != nil {
					t.Fatalf("ADD: %v, %s", err, first)
				}
				mac := inside(t, netns, "ip", "link", "show", "eth0")
				mac = regexp.MustCompile(`link/ether (\S+)`).FindStringSubmatch(mac)[1]
				if !strings.Contains(first, `"mac": "`+mac+`"`) || !strings.Contains(first, `"10.0.0.15/16"`) {
					t.Errorf("the interface has MAC address %s, and ADD printed %s", mac, first)
				}
				if got := inside(t, netns, "ip", "route"); !strings.Contains(got, "default via 10.0.0.1 dev eth0") {
					t.Errorf("routes of the sandbox: %s", got)
				}
				if got := bound(); typ == "midonet" && got != plug.HostDevice(portA)+" "+mac {
					t.Errorf("mm-ctl has bound %q", got)
				}
				again, err := call("ADD", "1.0.0", "")
				if diff := cmp.Diff(first, again); err != nil || diff != "" {
					t.Errorf("second ADD: %v (-first +second)\n%s", err, diff)
				}
				if out, err := call("CHECK", "1.0.0", `,"prevResult":`+first); err != nil {
					t.Errorf("CHECK: %v, %s", err, out)
				}
				old, err := call("ADD", "0.1.0", "")
				var result struct{ IP4 struct{ IP, Gateway string } }
				if err != nil || json.Unmarshal([]byte(old), &result) != nil || result.IP4.IP != "10.0.0.15/16" || result.IP4.Gateway != "10.0.0.1" {
					t.Errorf("ADD of version 0.1.0: %v, %s", err, old)
				}
				if out, err := call("DEL", "1.0.0", ""); err != nil || bound() != "" || len(n.daemon.journal.all()) != 0 {
					t.Errorf("DEL: %v, %s; mm-ctl has bound %q", err, out, bound())
				}
			})
		}
	}
}

// The kernel refuses some of these host routes, or the default route after them. Pods start all the same.
func TestHostRoutesDoNotStopPods(t *testing.T) {
	if !nodetest.Inside(t) {
		return
	}
	n := newNode(t)
	n.realDrivers()
	n.start()
	for _, test := range []struct{ to, by, want string }{ // want: of "ip route"; empty: not in it
		{"198.51.100.0/24", "10.0.0.254", "198.51.100.0/24 via 10.0.0.254 dev eth0"},
		{"198.51.100.0/24", "0.0.0.0", "198.51.100.0/24 dev eth0 scope link"},
		{"198.51.100.0/24", "192.0.2.1", "198.51.100.0/24 via 192.0.2.1 dev eth0 onlink"},
		{"198.51.100.0/24", "10.0.0.255", ""},
		{"198.51.100.0/24", "10.0.0.5", ""},
		{"198.51.100.0/24", "224.0.0.1", ""},
		{"198.51.100.0/24", "127.0.0.1", ""},
		{"10.0.0.0/24", "10.0.0.1", "10.0.0.0/24 dev eth0 proto kernel"},
		{"10.0.0.0/24", "192.0.2.1", "10.0.0.0/24 dev eth0 proto kernel"},
		{"2001:db8:1::/64", "::", "2001:db8:1::/64 dev eth0"},
		{"2001:db8:1::/64", "fd00::5", ""},
		{"2001:db8:1::/64", "ff02::1", ""},
		{"2001:db8:1::/64", "::1", ""},
		{"fd00::/64", "fd00::1", "fd00::/64 dev eth0 proto kernel"},
	} {
		t.Run(test.to+" by "+test.by, func(t *testing.T) {
			port := kuryrPort(portA, uidA)
			port.Spec.VIF.Type = "bridge"
			port.Spec.VIF.Routes = []v1.Route{{Destination: test.to, Gateway: test.by}}
			n.api.put(port)
			n.eventually("the daemon knows the port", func() bool {
				p := n.daemon.ports.port(portA)
				return p != nil && p.Spec.VIF.Routes[0] == port.Spec.VIF.Routes[0]
			})
			netns := newSandbox(t)
			added := n.do(request("ADD", "c1", netns))
			defer n.do(request("DEL", "c1", netns))
			got := inside(t, netns, "ip", "route") + inside(t, netns, "ip", "-6", "route")
			if !strings.Contains(got, test.want) || test.want == "" && strings.Contains(got, test.to) {
				t.Errorf("a host route to %s by %s gives the pod the routes\n%swant %q", test.to, test.by, got, test.want)
			}
			if !strings.Contains(got, "default via 10.0.0.1 dev eth0") {
				t.Errorf("with a host route to %s by %s the pod has no default route:\n%s", test.to, test.by, got)
			}
			for _, r := range added.Routes {
				if r.GW != nil && r.GW.IsUnspecified() {
					t.Errorf("the result of ADD has the route %v, want no gateway of a route on the link", r)
				}
			}
		})
	}
}

// realDrivers makes the node use real drivers. bound returns what mm-ctl has bound: the device,
// and the MAC address that the driver received.
func (n *node) realDrivers() (bound func() string) {
	n.t.Helper()
	bin, ports := n.t.TempDir(), n.t.TempDir()
	// A shell writes the file. A file that this process has opened for writing cannot be run
	// while a child that was forked meanwhile still holds it.
	write := exec.Command("sh", "-c", `cat >"$1" && chmod 755 "$1"`, "sh", filepath.Join(bin, "mm-ctl"))
	write.Stdin = strings.NewReader(`#!/bin/sh
case $1 in
--bind-port) echo "$3 $KURYR_MAC" >` + ports + `/"$2" ;;
--unbind-port) rm -- ` + ports + `/"$2" ;;
*) exit 64 ;;
esac
`)
	if out, err := write.CombinedOutput(); err != nil {
		n.t.Fatalf("writing mm-ctl: %v: %s", err, out)
	}
	n.t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	drivers := n.t.TempDir() // owned by root, whatever user owns the source
	if out, err := exec.Command("install", "-o", "root", "-m", "755", "../../config/drivers/midonet", drivers).CombinedOutput(); err != nil {
		n.t.Fatalf("installing the driver: %v: %s", err, out)
	}
	set := plug.New(plug.Config{Bridge: "br-test", DriverDir: drivers})
	n.t.Cleanup(set.Close)
	n.real = set
	return func() string {
		b, _ := os.ReadFile(filepath.Join(ports, portA))
		return strings.TrimSpace(string(b))
	}
}

// newSandbox makes a network namespace, which ends with the test.
func newSandbox(t *testing.T) string {
	t.Helper()
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
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
}

func inside(t *testing.T, netns string, command ...string) string {
	t.Helper()
	out, err := exec.Command("nsenter", append([]string{"--net=" + netns}, command...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s in %s: %v: %s", strings.Join(command, " "), netns, err, out)
	}
	return string(out)
}

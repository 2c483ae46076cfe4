// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nested

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/gophercloud/gophercloud/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

const (
	host      = "n1"            // where the virtual machine runs
	elsewhere = "n2"            // the node of another pod
	node      = "nested"        // the machine's name in Kubernetes, and that of the test's namespace
	patience  = 2 * time.Minute // of a step, far above what it takes
	boots     = 8 * time.Minute // of an emulated machine on a busy one

	netnsOf = "kuryr-bed-" // and a node's name: its network namespace
	device  = "tapnested"  // the virtual machine's, on the host
	full    = 256 << 10    // bytes that pods serve
)

// bed is the test bed, and what a test has made on it.
type bed struct {
	*cluster.Cluster
	t *testing.T
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // controller-runtime complains without one
	os.Exit(m.Run())
}

func onBed(t *testing.T) bed {
	t.Helper()
	if os.Getenv("KURYR_E2E") == "" || os.Getenv("KURYR_BED_KIND") != "real" {
		t.Skip("SKIPPED: no test bed with a real OpenStack: run `make e2e-nested` while one is up (make bed-up)")
	}
	c, err := cluster.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return bed{c, t}
}

// TestNode has Kuryr serve a node that is a virtual machine, the parent of a trunk of
// the real Neutron: the controller makes ports for its pods of both kinds, the daemon
// in the machine plugs them, all reach all, and nothing is left of them in the end.
func TestNode(t *testing.T) {
	b := onBed(t)
	own := b.machinePort()
	trunk := b.trunk(own.ID)
	b.configure("vlan", os.Getenv("POD_SUBNET"))
	b.node(own.ip())
	b.namespace()
	b.tap(own)

	other := b.pod("elsewhere", elsewhere)
	guests := []guest{b.guest("one", "vlan"), b.guest("two", "vlan")}
	b.eventually("starting a pod on "+elsewhere, func() error { return b.running(other) })
	b.configure("macvlan", own.subnet.ID)
	guests = append(guests, b.guest("three", "macvlan"))
	b.hang(own, trunk, guests)

	vm := b.boot(b.files(own, guests, other.Status.PodIP), own)
	vm.wait(t, "plugged")
	for _, g := range guests {
		b.eventually("telling where "+g.pod.Name+" is plugged", func() error { return b.attached(g) })
		b.reached(other, g.ip())
	}
	b.next(vm)
	vm.wait(t, "reached")
	b.next(vm)
	vm.wait(t, "unplugged")
	b.deletePods()
	b.eventually("giving the ports back", func() error { return b.gone(own, trunk, guests) })
	b.next(vm)
	vm.end(t)
}

// guest is a pod of the virtual machine, and its port.
type guest struct {
	pod  *corev1.Pod
	port *v1.KuryrPort
}

func (g guest) ip() string { return g.port.Spec.VIF.Addresses[0].IP }

// guest makes a pod, which gets a port that is plugged as vifType says, as soon as the
// controller has seen the change of the configuration.
func (b bed) guest(name, vifType string) (g guest) {
	b.t.Helper()
	b.eventually("getting a port for pod "+name, func() (err error) {
		if g.pod == nil {
			g.pod = b.pod(name, node)
		}
		if g.port, err = b.KuryrPortOf(b.t.Context(), g.pod); err != nil {
			return err
		}
		if is := g.port.Spec.VIF.Type; is != vifType {
			err = b.Client.Delete(b.t.Context(), g.pod, client.GracePeriodSeconds(0))
			g.pod = nil
			return fmt.Errorf("port %s is of type %s (%w)", g.port.Name, is, err)
		}
		if g.port.Status.Phase != v1.PortBound {
			return fmt.Errorf("port %s is %s", g.port.Name, g.port.Status.Phase)
		}
		return nil
	})
	b.t.Logf("pod %s has port %s: %s, %s, VLAN ID %d", name, g.port.Name, vifType, g.ip(), g.port.Spec.VIF.VLANID)
	return g
}

// hang checks that in Neutron the ports hang on the machine's: in its trunk, or as an
// address of its own while they are disabled.
func (b bed) hang(own machinePort, trunk string, guests []guest) {
	b.t.Helper()
	inTrunk, pairs := b.subports(trunk), b.pairs(own)
	for _, g := range guests {
		if id := g.port.Spec.VIF.VLANID; inTrunk[g.port.Name] != int(id) {
			b.t.Errorf("the trunk has port %s with VLAN ID %d, want %d", g.port.Name, inTrunk[g.port.Name], id)
		}
		apart := g.port.Spec.VIF.Type == "macvlan"
		if p, err := b.Port(b.t.Context(), g.port.Name); err != nil || p.AdminStateUp == apart {
			b.t.Errorf("port %s is enabled: %t, want %t (%v)", g.port.Name, p.AdminStateUp, !apart, err)
		}
		if slices.Contains(pairs, g.ip()+"/32") != apart {
			b.t.Errorf("the machine's port has the address pairs %q, with %s: want %t", pairs, g.ip(), apart)
		}
	}
}

// attached says whether the daemon has told of the sandbox.
func (b bed) attached(g guest) error {
	now := &v1.KuryrPort{}
	err := b.Client.Get(b.t.Context(), client.ObjectKeyFromObject(g.port), now)
	if a := now.Status.Attachment; err == nil && (a == nil || a.ContainerID != "sandbox-"+g.pod.Name) {
		err = fmt.Errorf("port %s has the attachment %v", g.port.Name, a)
	}
	return err
}

// reached checks that a pod of the virtual machine is reached from outside of it.
func (b bed) reached(other *corev1.Pod, ip string) {
	b.t.Helper()
	from := func(command string) (string, error) {
		return b.Exec(b.t.Context(), other.Namespace, other.Name, "sh", "-c", command)
	}
	b.eventually("ping from "+elsewhere+" to "+ip, func() error {
		out, err := from("ping -c1 -W5 " + ip)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	if out, err := from("curl -sS --max-time 60 http://" + ip + ":8080/full | wc -c"); err != nil || out != fmt.Sprint(full) {
		b.t.Errorf("TCP from %s to %s: %q, %v, want %d", elsewhere, ip, out, err, full)
	}
	if n, err := fetch(b.t.Context(), "http://"+ip+":8080/full"); err != nil || n != full {
		b.t.Errorf("TCP from outside to %s: %d bytes, %v, want %d", ip, n, err, full)
	}
}

func fetch(ctx context.Context, url string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	answer, err := new(http.Transport).RoundTrip(request) // past any proxy
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	return io.Copy(io.Discard, answer.Body)
}

// gone says what is left of ports.
func (b bed) gone(own machinePort, trunk string, guests []guest) error {
	if left, pairs := b.subports(trunk), b.pairs(own); len(left)+len(pairs) > 0 {
		return fmt.Errorf("the trunk has subports %v, and its parent the address pairs %q", left, pairs)
	}
	for _, g := range guests {
		now := &v1.KuryrPort{}
		if err := b.Client.Get(b.t.Context(), client.ObjectKeyFromObject(g.port), now); !apierrors.IsNotFound(err) {
			return fmt.Errorf("KuryrPort %s is there, with attachment %v (%w)", g.port.Name, now.Status.Attachment, err)
		}
		if _, err := b.Port(b.t.Context(), g.port.Name); !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			return fmt.Errorf("port %s is there in Neutron (%w)", g.port.Name, err)
		}
	}
	return nil
}

// files makes a folder with what the machine needs.
func (b bed) files(own machinePort, guests []guest, target string) string {
	b.t.Helper()
	dir := b.t.TempDir()
	b.sh("go", "build", "-o", dir+"/", "../../cmd/kuryr", "../../cmd/kuryr-cni")
	b.sh("cp", "machine.sh", dir)
	var list []string
	for _, g := range guests {
		list = append(list, strings.Join([]string{g.pod.Namespace, g.pod.Name, string(g.pod.UID), g.ip(), g.port.Spec.VIF.Type}, "/"))
	}
	plan := fmt.Sprintf("node=%s address=%s gateway=%s mtu=%s\npods='%s' targets='%s'\n", node, own.prefix(), own.subnet.GatewayIP,
		os.Getenv("POD_MTU"), strings.Join(list, " "), target+" 172.30.0.1")
	for name, content := range map[string]string{"plan": plan, "kubeconfig": b.kubeconfig(), "kuryr.yaml": b.daemonConfiguration()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
	return dir
}

// eventually ends the test unless check succeeds within patience.
func (b bed) eventually(what string, check func() error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	started := time.Now()
	if err := cluster.Until(ctx, check); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	b.t.Logf("%s: done after %s", what, time.Since(started).Round(10*time.Millisecond))
}

func run(command ...string) (string, error) {
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	return string(out), err
}

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
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/gophercloud/gophercloud/v2"
	corev1 "k8s.io/api/core/v1"
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

// TestNode has Kuryr serve a node that is a virtual machine on the trunk of the real
// Neutron: the controller makes subports for its pods, the daemon in the machine plugs
// them, all reach all, and nothing is left of them in the end.
func TestNode(t *testing.T) {
	b := onBed(t)
	own := b.machinePort()
	trunk := b.trunk(own.ID)
	pods := b.kubernetes(own)
	b.tap(own)

	vlan := b.bound(pods[:2], "vlan")
	inTrunk := b.subports(trunk)
	for _, p := range vlan {
		if id := inTrunk[p.Name]; id == 0 || id != int(p.Spec.VIF.VLANID) {
			t.Errorf("the trunk has port %s with VLAN ID %d, want %d", p.Name, id, p.Spec.VIF.VLANID)
		}
	}
	other := b.pod("elsewhere", elsewhere)
	b.eventually("starting a pod on "+elsewhere, func() error { return b.running(other) })

	vm := b.boot(b.files(own, pods, vlan, other.Status.PodIP), own)
	vm.wait(t, "plugged")
	for _, p := range vlan {
		b.reached(other, p)
	}
	b.next(vm)
	vm.wait(t, "reached")
	b.next(vm)
	vm.wait(t, "unplugged")
	b.deletePods()
	b.eventually("giving the ports back", func() error { return b.gone(trunk, vlan) })
	b.next(vm)
	vm.end(t)
}

// bound waits until each pod has a port that is plugged as vifType says.
func (b bed) bound(pods []*corev1.Pod, vifType string) []*v1.KuryrPort {
	b.t.Helper()
	var all []*v1.KuryrPort
	for _, pod := range pods {
		b.eventually("getting a port for pod "+pod.Name, func() error {
			p, err := b.KuryrPortOf(b.t.Context(), pod)
			if err != nil {
				return err
			}
			if p.Status.Phase != v1.PortBound || p.Spec.VIF.Type != vifType {
				return fmt.Errorf("port %s is %s, of type %s", p.Name, p.Status.Phase, p.Spec.VIF.Type)
			}
			all = append(all, p)
			return nil
		})
		p := all[len(all)-1]
		b.t.Logf("pod %s has port %s: %s, VLAN ID %d", pod.Name, p.Name, p.Spec.VIF.Addresses[0].IP, p.Spec.VIF.VLANID)
	}
	return all
}

// reached checks that a pod of the virtual machine is reached from outside of it.
func (b bed) reached(other *corev1.Pod, p *v1.KuryrPort) {
	b.t.Helper()
	ip := p.Spec.VIF.Addresses[0].IP
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
func (b bed) gone(trunk string, all []*v1.KuryrPort) error {
	if left := b.subports(trunk); len(left) > 0 {
		return fmt.Errorf("the trunk has subports %v", left)
	}
	for _, p := range all {
		if err := b.Client.Get(b.t.Context(), client.ObjectKeyFromObject(p), p); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("KuryrPort %s is there, with attachment %v (%w)", p.Name, p.Status.Attachment, err)
		}
		if _, err := b.Port(b.t.Context(), p.Name); !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			return fmt.Errorf("port %s is there in Neutron (%w)", p.Name, err)
		}
	}
	return nil
}

// files makes a folder with what the machine needs.
func (b bed) files(own machinePort, pods []*corev1.Pod, all []*v1.KuryrPort, target string) string {
	b.t.Helper()
	dir := b.t.TempDir()
	b.sh("go", "build", "-o", dir+"/", "../../cmd/kuryr", "../../cmd/kuryr-cni")
	b.sh("cp", "machine.sh", dir)
	var list []string
	for k, pod := range pods {
		vif := all[k].Spec.VIF
		list = append(list, strings.Join([]string{pod.Namespace, pod.Name, string(pod.UID), vif.Addresses[0].IP, vif.Type}, "/"))
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

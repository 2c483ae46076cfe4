// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/cni"
)

// cluster is a real API server with Kuryr's types.
type cluster struct {
	client.Client
	daemon     *rest.Config // of a user with the rights of a daemon
	kubeconfig string
}

func newCluster(t *testing.T) cluster {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("SKIPPED: needs kube-apiserver and etcd in the folder that KUBEBUILDER_ASSETS names; 'make envtest' builds them and says so")
	}
	e := &envtest.Environment{CRDDirectoryPaths: []string{"../../config/crd"}, ErrorIfCRDPathMissing: true}
	cfg, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, add := range []func(*runtime.Scheme) error{rbacv1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := cluster{}
	if c.Client, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	c.make(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "kuryr-daemon"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"openstack.org"}, Resources: []string{"kuryrports"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"openstack.org"}, Resources: []string{"kuryrports/status"}, Verbs: []string{"patch"}},
	}})
	c.make(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kuryr-daemon"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "kuryr-daemon"},
		Subjects:   []rbacv1.Subject{{Kind: "User", Name: "daemon"}},
	})
	user, err := e.AddUser(envtest.User{Name: "daemon"}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.daemon = user.Config()
	data, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	c.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(c.kubeconfig, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c cluster) make(t *testing.T, o client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func (c cluster) attachment(t *testing.T, name string) string {
	t.Helper()
	var p v1.KuryrPort
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &p); err != nil {
		t.Fatal(err)
	}
	if p.Status.Attachment == nil {
		return ""
	}
	return p.Status.Attachment.ContainerID
}

// On a real API server, with exactly the rights of docs/cni.md, the daemon sees only the ports of
// its node. It reports what is plugged, and takes it back.
func TestOnAPIServer(t *testing.T) {
	c := newCluster(t)
	n := newNode(t)
	connected, err := Connect(c.daemon, "n1")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := kuryrPort(portB, uidA)
	elsewhere.Spec.NodeName = "n2"
	c.make(t, elsewhere)
	ctx, stop := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
	d := &driver{machine: n.machine}
	o := Options{Node: "n1", Socket: n.socket(), API: connected, Drivers: d, Parking: d}
	o.Settings.StateDir, o.Settings.AddTimeout.Duration = filepath.Join(n.dir, "state"), 20*time.Second
	if n.daemon, err = New(ctx, o); err != nil {
		t.Fatal(err)
	}
	n.daemon.netns = n.machine
	ended := make(chan error, 1)
	go func() { ended <- n.daemon.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	}()
	n.eventually("the daemon is ready", func() bool { _, err := n.call(ctx, request("STATUS", "", "")); return err == nil })

	added := make(chan error, 1)
	go func() { _, err := n.call(ctx, request("ADD", "c1", "/run/netns/a")); added <- err }()
	c.make(t, kuryrPort(portA, uidA))
	if err := <-added; err != nil {
		t.Fatalf("ADD = %v", err)
	}
	if n.where(portA) != "c1" || n.where(portB) != "" || n.daemon.ports.port(portB) != nil {
		t.Error("the daemon has to do with a port of another node")
	}
	n.eventually("attached", func() bool { return c.attachment(t, portA) == "c1" })
	n.do(request("DEL", "c1", ""))
	n.eventually("not attached", func() bool { return c.attachment(t, portA) == "" })

	// A value that another client wrote is cleared, too.
	var p v1.KuryrPort
	if err := c.Get(ctx, client.ObjectKey{Name: portA}, &p); err != nil {
		t.Fatal(err)
	}
	p.Status.Attachment = entry{ContainerID: "forged", IfName: "eth0", Since: time.Now()}.attachment()
	if err := c.Status().Update(ctx, &p); err != nil {
		t.Fatal(err)
	}
	n.eventually("the forged attachment is gone", func() bool { return c.attachment(t, portA) == "" })
}

// The size of the process itself, with as many ports as a node has pods.
func TestSizeOfProcess(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	for i := range 110 {
		p := kuryrPort(fmt.Sprintf("%08d-7495-4557-b7fc-3e293508dbc6", i), fmt.Sprintf("%08d-2222-3333-4444-555555555555", i))
		p.Spec.PodRef.Name = fmt.Sprint("web-", i)
		c.make(t, p)
	}
	binary := filepath.Join(dir, "kuryr")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/kuryr-go/kuryr/cmd/kuryr")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	conf := filepath.Join(dir, "kuryr.yaml")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "apiVersion: kuryr.openstack.org/v1alpha1\nkind: KuryrConfiguration\n"+
		"pods: {subnetIDs: [a28c7404-7495-4557-b7fc-3e293508dbc6]}\nnode: {stateDir: %s, ovsdb: 'unix:%s'}\n", dir, filepath.Join(dir, "no-ovs.sock")), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	var log bytes.Buffer
	cmd := exec.Command(binary, "daemon", "--config", conf, "--kubeconfig", c.kubeconfig, "--node-name", "n1", "--socket", socket,
		"--health-probe-bind-address=0", "--metrics-bind-address=0")
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("kuryr daemon: %v\n%s", err, log.String())
		}
	}()
	n := newNode(t)
	n.eventually("the daemon has the ports", func() bool {
		req := request("ADD", "c1", "/nowhere")
		req.Args = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0"
		answer, err := cni.Call(t.Context(), socket, req)
		return err == nil && answer.Error != nil && (answer.Error.Code == cni.CodeDataPath || answer.Error.Code == cni.CodeInvalidNetns)
	})
	var calls atomic.Int64
	for range 200 {
		if _, err := cni.Call(t.Context(), socket, request("DEL", "c1", "")); err == nil {
			calls.Add(1)
		}
	}
	all, own := residentMiB(t, cmd.Process.Pid)
	t.Logf("resident after %d calls with 110 ports: %d MiB, of which %d MiB are the process's own", calls.Load(), all, own)
	if own > 14 {
		t.Errorf("the daemon has %d MiB of its own, want 14 at most", own)
	}
}

// residentMiB returns the resident memory of a process, and its own part of it. The rest is pages
// of its file. How many are mapped depends on what the node has cached (25 to 33 MiB were seen of
// the same executable). All processes share them, and the node reclaims them when it needs
// memory.
func residentMiB(t *testing.T, pid int) (all, own int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string) int {
		found := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(status)
		if found == nil {
			t.Fatalf("no %s in %s", name, status)
		}
		kb, err := strconv.Atoi(string(found[1]))
		if err != nil {
			t.Fatal(err)
		}
		return kb / 1024
	}
	return of("VmRSS"), of("RssAnon")
}

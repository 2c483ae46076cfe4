// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
)

// output is what a command logs.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

// logs is what all commands of this process log: libraries keep the logger that
// they are given first.
var logs output

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await waits as long as the test may, less the time to stop what it started.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline, bounded := t.Deadline()
	for !done() {
		if bounded && time.Until(deadline) < 20*time.Second {
			t.Fatal("gave up waiting for " + what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func ready(t *testing.T, address string) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode == http.StatusOK
}

// freeAddress is one that nobody listens on, a moment ago at least.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// held has somebody else lead, and returns what ends that, and what tells who leads, and what the table says.
func held(t *testing.T, cluster *rest.Config) (release func(), holder, table func() string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		t.Fatal(err)
	}
	leases := client.CoordinationV1().Leases("default")
	l, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: shards.TableName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("host_other"), LeaseDurationSeconds: new(int32(3600)), AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	release = func() {
		l.Spec.HolderIdentity = new("")
		if _, err := leases.Update(t.Context(), l, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	now := func() *coordinationv1.Lease {
		now, err := leases.Get(t.Context(), shards.TableName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	return release, func() string { return *now().Spec.HolderIdentity }, func() string { return now().Annotations["openstack.org/owners"] }
}

// The address of the leader's name is as in kuryr-kubernetes, with the port of its variable.
func TestLeaderAddress(t *testing.T) {
	for port, want := range map[string]string{"": "127.0.0.1:16401", "17000": "127.0.0.1:17000"} {
		t.Setenv("KURYR_CONTROLLER_HA_PORT", port)
		if got := controllerCommand().Flags().Lookup("leader-api-bind-address").DefValue; got != want {
			t.Errorf("with port %q: %s, want %s", port, got, want)
		}
	}
}

// The systemd unit calls the command as it is.
func TestSystemdUnitArguments(t *testing.T) {
	text, err := os.ReadFile("../../config/systemd/kuryr-controller.service")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(text), "\nExecStart=/usr/local/bin/kuryr ")
	line, _, _ = strings.Cut(line, "\n")
	cmd, args, err := rootCommand().Find(strings.Fields(line))
	if err == nil {
		err = cmd.ParseFlags(args)
	}
	if err != nil || cmd.Name() != "controller" || !strings.HasPrefix(cmd.Flag("kubeconfig").Value.String(), "%d/") {
		t.Errorf("arguments %q: %s, %v", line, cmd.Name(), err)
	}
}

// The controller starts although the cloud is away, takes up a changed configuration
// also while another leads, leads, keeps the old one if the new has faults, and ends
// when told to.
func TestControllerRuns(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("SKIPPED: needs kube-apiserver and etcd in the folder that KUBEBUILDER_ASSETS names; 'make envtest' builds them and says so")
	}
	env := &envtest.Environment{CRDDirectoryPaths: []string{"../../config/crd"}, ErrorIfCRDPathMissing: true}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	server, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	cluster := func() (c v1.KuryrCluster, err error) {
		scheme, err := controller.Scheme()
		if err != nil {
			return c, err
		}
		reader, err := client.New(server, client.Options{Scheme: scheme})
		if err != nil {
			return c, err
		}
		err = reader.Get(t.Context(), client.ObjectKey{Name: v1.ClusterName}, &c)
		return c, err
	}
	release, holder, table := held(t, server)
	dir := t.TempDir()
	kubeconfig, file := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "kuryr.yaml")
	configure := func(tail string) {
		text := "apiVersion: kuryr.openstack.org/v1alpha1\nkind: KuryrConfiguration\npods: {subnetIDs: [7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e11]}\n" + tail
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("")
	if err := os.WriteFile(kubeconfig, env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"OS_CLOUD": "", "OS_AUTH_URL": "http://127.0.0.1:1/v3", "OS_USERNAME": "u", "OS_PASSWORD": "p", "OS_PROJECT_NAME": "p",
		"OS_USER_DOMAIN_NAME": "Default", "OS_PROJECT_DOMAIN_NAME": "Default",
	} {
		t.Setenv(k, v)
	}
	health := freeAddress(t)
	root := rootCommand()
	root.SetErr(&logs)
	root.SetArgs([]string{
		"controller", "--kubeconfig", kubeconfig, "--config", file,
		"--health-probe-bind-address", health, "--metrics-bind-address", "0", "--leader-api-bind-address", "0", "--leader-elect-namespace", "default",
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("kuryr controller: %v", err)
		}
		if t.Failed() {
			t.Log(logs.String())
		}
	})
	await(t, "/readyz", func() bool { return ready(t, health) })
	taken := func(max int) func() bool {
		configure(fmt.Sprintf("pools: {min: 1, max: %d}\n", max))
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return func() bool { return strings.Contains(logs.String(), config.Hash(data)) }
	}
	await(t, "the changed configuration, in a replica that does not lead", taken(2))
	if got := holder(); got != "host_other" {
		t.Errorf("%s leads, want the other one", got)
	}
	release()
	await(t, "this replica to lead", func() bool { return holder() != "" })
	await(t, "the changed configuration, in the leader", taken(3))
	configure("controllers: {active: 2}\n")
	await(t, "the table to say how many are to work", func() bool { return strings.Contains(table(), `"active":2`) })
	await(t, "the report that the cloud is away", func() bool {
		c, err := cluster()
		return err == nil && meta.IsStatusConditionFalse(c.Status.Conditions, v1.ConditionChecked)
	})
	configure("pools: {min: 3, max: 2}\n")
	await(t, "the refusal of the faulty one", func() bool { return strings.Contains(logs.String(), "min 3 is above max 2") })
}

// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// adoptBed is a cluster of a bare-metal node and a virtual machine, and an
// OpenStack in which an earlier Kuryr has left free ports of both.
type adoptBed struct {
	t          *testing.T
	client     client.Client
	sim        *openstacksim.Cloud
	token      string
	kubeconfig string
	config     string

	group                           string
	bound, subport, unbound, theirs string // the ports left
}

func newAdoptBed(t *testing.T) *adoptBed {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("SKIPPED: needs kube-apiserver and etcd in the folder that KUBEBUILDER_ASSETS names; 'make envtest' builds them and says so")
	}
	b := &adoptBed{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), config: filepath.Join(t.TempDir(), "kuryr.yaml")}
	b.startCluster("../../config/crd")
	b.sim = openstacksim.Start(t, func(o *openstacksim.Options) { o.Hosts = []string{"metal", "theirs"} })
	b.logIn()
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", b.sim.CloudsFile(t))
	b.leave()
	return b
}

// startCluster starts a cluster with the definitions of these folders.
func (b *adoptBed) startCluster(definitions ...string) {
	env := &envtest.Environment{CRDDirectoryPaths: definitions, ErrorIfCRDPathMissing: true}
	b.t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			b.t.Error(err)
		}
	})
	cfg, err := env.Start()
	b.must(err)
	b.must(os.WriteFile(b.kubeconfig, env.KubeConfig, 0o600))
	scheme, err := controller.Scheme()
	b.must(err)
	b.client, err = client.New(cfg, client.Options{Scheme: scheme})
	b.must(err)
	for name, ip := range map[string]string{"metal": "192.168.0.8", "vm": "192.168.0.9"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"machine": name}}}
		b.must(b.client.Create(b.t.Context(), node))
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
		b.must(b.client.Status().Update(b.t.Context(), node))
	}
}

func (b *adoptBed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// ask makes a request of OpenStack, as an administrator of the project.
func (b *adoptBed) ask(method, path string, in, out any) http.Header {
	b.t.Helper()
	body, err := json.Marshal(in)
	b.must(err)
	r := httptest.NewRequestWithContext(b.t.Context(), method, b.sim.URL()+path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Auth-Token", b.token)
	answer := httptest.NewRecorder()
	b.sim.ServeHTTP(answer, r)
	if answer.Code >= 300 {
		b.t.Fatalf("%s %s: %d %s", method, path, answer.Code, answer.Body)
	}
	b.must(json.Unmarshal(answer.Body.Bytes(), out))
	return answer.Header()
}

func (b *adoptBed) logIn() {
	domain := map[string]any{"id": "default"}
	user := map[string]any{"name": "kuryr", "domain": domain, "password": "secret"}
	b.token = b.ask(http.MethodPost, "/identity/v3/auth/tokens", map[string]any{"auth": map[string]any{
		"identity": map[string]any{"methods": []string{"password"}, "password": map[string]any{"user": user}},
		"scope":    map[string]any{"project": map[string]any{"name": "k8s", "domain": domain}},
	}}, &struct{}{}).Get("X-Subject-Token")
}

func (b *adoptBed) make(kind string, fields map[string]any) (id string) {
	b.t.Helper()
	name := strings.ReplaceAll(kind, "-", "_")
	var made map[string]struct{ ID string }
	b.ask(http.MethodPost, "/networking/v2.0/"+kind+"s", map[string]any{name: fields}, &made)
	return made[name].ID
}

// leave makes the networks, the configuration for them, and the ports that were left.
func (b *adoptBed) leave() {
	pods := b.make("network", map[string]any{"name": "pods"})
	subnet := b.make("subnet", map[string]any{"network_id": pods, "cidr": "10.1.0.0/16", "ip_version": 4})
	machines := b.make("network", map[string]any{"name": "machines"})
	nodes := b.make("subnet", map[string]any{"network_id": machines, "cidr": "192.168.0.0/24", "ip_version": 4})
	parent := b.make("port", map[string]any{"network_id": machines, "fixed_ips": []any{map[string]any{"subnet_id": nodes, "ip_address": "192.168.0.9"}}})
	b.group = b.make("security-group", map[string]any{"name": "pods"})
	old := b.make("security-group", map[string]any{"name": "of-the-last-pod"})
	b.must(os.WriteFile(b.config, fmt.Appendf(nil, "apiVersion: kuryr.openstack.org/v1alpha1\nkind: KuryrConfiguration\nclusterID: here\n"+
		"pods: {subnetIDs: [%s], securityGroupIDs: [%s]}\npools: {min: 0, ttl: 1h, cooldown: 0s}\n"+
		"nodes: [{nodeSelector: {matchLabels: {machine: vm}}, vifType: vlan, parentSubnetIDs: [%s]}]\n", subnet, b.group, nodes), 0o600))
	free := func(more map[string]any) string {
		fields := map[string]any{"network_id": pods, "name": "available-port", "device_owner": "compute:kuryr", "security_groups": []string{old}}
		for k, v := range more {
			fields[k] = v
		}
		return b.make("port", fields)
	}
	b.bound = free(map[string]any{"binding:host_id": "metal"})
	b.theirs = free(map[string]any{"binding:host_id": "theirs"})
	b.unbound = free(nil)
	b.subport = free(nil)
	b.make("trunk", map[string]any{"port_id": parent, "sub_ports": []any{
		map[string]any{"port_id": b.subport, "segmentation_type": "vlan", "segmentation_id": 101},
	}})
}

// adopt runs the command and returns what it printed.
func (b *adoptBed) adopt(more ...string) (string, error) {
	var out bytes.Buffer
	root := rootCommand()
	root.SetOut(&out)
	root.SetErr(&logs)
	root.SetArgs(append([]string{"adopt", "--kubeconfig", b.kubeconfig, "--config", b.config, "--leader-elect-namespace", "default"}, more...))
	err := root.ExecuteContext(b.t.Context())
	return out.String(), err
}

func (b *adoptBed) ports() map[string]v1.KuryrPort {
	b.t.Helper()
	var list v1.KuryrPortList
	b.must(b.client.List(b.t.Context(), &list))
	out := map[string]v1.KuryrPort{}
	for _, p := range list.Items {
		out[p.Name] = p
	}
	return out
}

// inCloud returns the names of the ports that OpenStack has, but for the machine's.
func (b *adoptBed) inCloud() []string {
	b.t.Helper()
	var list struct {
		Ports []struct{ ID, Name string }
	}
	b.ask(http.MethodGet, "/networking/v2.0/ports", nil, &list)
	var out []string
	for _, p := range list.Ports {
		if p.Name != "" {
			out = append(out, p.ID)
		}
	}
	slices.Sort(out)
	return out
}

// lease writes who leads, as a controller does.
func (b *adoptBed) lease(holder string) {
	b.t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: shards.TableName}}
	b.must(client.IgnoreAlreadyExists(b.client.Create(b.t.Context(), l)))
	b.must(b.client.Get(b.t.Context(), client.ObjectKeyFromObject(l), l))
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &holder, new(int32(30))
	l.Spec.RenewTime, l.Spec.AcquireTime = new(metav1.NowMicro()), new(metav1.NowMicro())
	b.must(b.client.Update(b.t.Context(), l))
}

// Ports that an earlier Kuryr has left get into the pools of their nodes, those
// of which no pool can be told go, and a controller that starts then serves pods
// from them: it makes none, and puts the security groups in order.
func TestAdopt(t *testing.T) {
	b := newAdoptBed(t)
	all := b.inCloud()
	out, err := b.adopt()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"adopt    " + b.bound, "adopt    " + b.subport, "delete   " + b.unbound, "leave    " + b.theirs,
		"4 ports: 2 to adopt, 1 to delete, 1 to leave.", "Nothing was done",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("adopt does not say %q:\n%s", want, out)
		}
	}
	if got := b.inCloud(); !slices.Equal(got, all) || len(b.ports()) != 0 {
		t.Errorf("a dry run left %v of %v and made %d KuryrPorts", got, all, len(b.ports()))
	}

	if _, err := b.adopt("--yes", "--leader-elect-namespace", "nowhere"); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("adopt with its Lease in no namespace: %v", err)
	}
	b.lease("controller-1")
	renewing, ended := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for kube.Pause(renewing, time.Second) {
			b.lease("controller-1")
		}
	})
	out, err = b.adopt("--yes")
	ended()
	group.Wait()
	if err == nil || !strings.Contains(err.Error(), "controller-1") || len(b.ports()) != 0 {
		t.Errorf("adopt beside a controller: %v, %d KuryrPorts\n%s", err, len(b.ports()), out)
	}
	b.lease("")
	out, err = b.adopt("--yes")
	if err != nil || !strings.Contains(out, "Adopted 2 ports, deleted 1.") {
		t.Fatalf("adopt --yes: %v\n%s", err, out)
	}
	want := []string{b.bound, b.subport, b.theirs}
	slices.Sort(want)
	if got := b.inCloud(); !slices.Equal(got, want) {
		t.Errorf("ports in the cloud: %v, want %v", got, want)
	}
	if p := b.ports()[b.subport]; p.Spec.NodeName != "vm" || p.Spec.VIF.Type != "vlan" || p.Spec.VIF.VLANID != 101 || p.Spec.VIF.ParentPortID == "" {
		t.Errorf("KuryrPort of the subport: %+v", p.Spec)
	}
	if p := b.ports()[b.bound]; p.Spec.NodeName != "metal" || p.Spec.VIF.Type != "ovs" {
		t.Errorf("KuryrPort of the bound port: %+v", p.Spec)
	}
	b.serve(want)
}

// serve runs a controller until the adopted ports are fit for pods.
func (b *adoptBed) serve(inCloud []string) {
	ctx, stop := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	root := rootCommand()
	root.SetErr(&logs)
	root.SetArgs([]string{
		"controller", "--kubeconfig", b.kubeconfig, "--config", b.config, "--leader-elect-namespace", "default",
		"--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--leader-api-bind-address", "0",
	})
	go func() { ended <- root.ExecuteContext(ctx) }()
	await(b.t, "the adopted ports", func() bool {
		for _, p := range b.ports() {
			if p.Status.Phase != v1.PortAvailable || !slices.Equal(p.Status.AppliedSecurityGroupIDs, []string{b.group}) || !p.DeletionTimestamp.IsZero() {
				return false
			}
		}
		return len(b.ports()) == 2
	})
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		b.t.Error(err)
	}
	if got := b.inCloud(); !slices.Equal(got, inCloud) || b.t.Failed() {
		b.t.Errorf("ports in the cloud with a controller: %v, want %v\n%s", got, inCloud, logs.String())
	}
	var list v1.KuryrPortPoolList
	b.must(b.client.List(b.t.Context(), &list))
	for _, p := range list.Items {
		if p.Spec.TTL.Duration != time.Hour {
			b.t.Errorf("pool %s keeps free ports for %s: the controller does not know it as its own", p.Name, p.Spec.TTL.Duration)
		}
	}
}

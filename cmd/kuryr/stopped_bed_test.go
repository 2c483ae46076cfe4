// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// stopBed is a cluster with three processes of the controller, which a kubelet of its own starts again when
// they end, and a cloud.
type stopBed struct {
	adoptBed // for its requests to the cloud
	front    *front
	address  string // of front
	dir      string
	active   int
	rng      *rand.Rand
	slots    []*slot
	ending   context.Context // ends when processes are not to be started again

	mu     sync.Mutex
	faults []string
}

// slot is a pod of the controller. Its process has a name, which changes when it is started again.
type slot struct {
	pod     string
	metrics string

	mu      sync.Mutex
	process *os.Process
	name    string
	stopped map[string]bool // the names of processes that were stopped
	ended   int             // processes that ended without having been stopped
}

const nodes, namespaces = 8, 4

func newStopBed(t *testing.T, active int, seed uint64) *stopBed {
	b := &stopBed{dir: t.TempDir(), active: active, rng: rand.New(rand.NewPCG(seed, 1<<40+uint64(active)))}
	b.t = t
	env := &envtest.Environment{CRDDirectoryPaths: []string{"../../config/crd"}, ErrorIfCRDPathMissing: true}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	env.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", "10.0.0.0/16")
	cluster, err := env.Start()
	b.must(err)
	server, err := url.Parse(cluster.Host)
	b.must(err)
	to, err := transport(cluster)
	b.must(err)
	scheme, err := controller.Scheme()
	b.must(err)
	direct := *cluster
	direct.QPS = -1
	b.client, err = client.New(&direct, client.Options{Scheme: scheme})
	b.must(err)
	b.front = &front{server: server, to: to, held: map[string]chan struct{}{}, tokens: map[string]string{}, uids: map[string]string{}}
	b.listen()
	b.fill()
	b.run()
	return b
}

// listen starts the cloud, and what is before it and the API server.
func (b *stopBed) listen() {
	l, err := new(net.ListenConfig).Listen(b.t.Context(), "tcp", "127.0.0.1:0")
	b.must(err)
	b.address = l.Addr().String()
	var hosts []string
	for i := range nodes {
		hosts = append(hosts, fmt.Sprint("n", i))
	}
	b.sim, err = openstacksim.New(openstacksim.Options{URL: "http://" + b.address, Seed: 1, Hosts: hosts, Quota: map[string]int{"port": -1, "security_group": -1, "security_group_rule": -1}})
	b.must(err)
	b.front.sim = b.sim
	serving := &http.Server{Handler: b.front, ReadHeaderTimeout: time.Minute}
	go func() { _ = serving.Serve(l) }()
	b.t.Cleanup(func() {
		b.sim.Close()
		_ = serving.Close()
	})
	b.logIn()
}

// fill makes nodes, namespaces, networks and the configuration.
func (b *stopBed) fill() {
	for i := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		b.must(b.client.Create(b.t.Context(), node))
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprint("192.168.0.", 10+i)}}
		b.must(b.client.Status().Update(b.t.Context(), node))
	}
	for i := range namespaces {
		b.must(b.client.Create(b.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)}}))
	}
	pods, services := b.make("network", map[string]any{"name": "pods"}), b.make("network", map[string]any{"name": "services"})
	subnet := b.make("subnet", map[string]any{"network_id": pods, "cidr": "10.1.0.0/16", "ip_version": 4})
	vips := b.make("subnet", map[string]any{
		"network_id": services, "cidr": "10.0.0.0/16", "ip_version": 4, "enable_dhcp": false, "gateway_ip": "10.0.255.254",
		"allocation_pools": []any{map[string]any{"start": "10.0.255.1", "end": "10.0.255.253"}},
	})
	b.group = b.make("security-group", map[string]any{"name": "pods"})
	b.config = filepath.Join(b.dir, "kuryr.yaml")
	b.must(os.WriteFile(b.config, fmt.Appendf(nil, "apiVersion: kuryr.openstack.org/v1alpha1\nkind: KuryrConfiguration\nclusterID: here\n"+
		"neutron: {requestsPerSecond: 200, requestTimeout: 15s}\n"+
		"pods: {subnetIDs: [%s], securityGroupIDs: [%s]}\npools: {min: 1, max: 3, batch: 3, cooldown: 1s}\nservices: {subnetIDs: [%s]}\n"+
		"preflight: {firstStartWaits: false}\norphans: {grace: 20s}\ncontrollers: {active: %d}\n", subnet, b.group, vips, b.active), 0o600))
}

// run starts the processes.
func (b *stopBed) run() {
	ending, end := context.WithCancel(b.t.Context())
	b.ending = ending
	var group sync.WaitGroup
	for i := range 3 {
		s := &slot{pod: fmt.Sprint("controller-", i), metrics: freeAddress(b.t), stopped: map[string]bool{}}
		b.slots = append(b.slots, s)
		group.Go(func() { b.keep(s) })
	}
	b.t.Cleanup(func() {
		end()
		group.Wait()
		if b.t.Failed() {
			b.tellLogs()
		}
	})
}

func (b *stopBed) tellLogs() {
	for _, s := range b.slots {
		text, _ := os.ReadFile(filepath.Join(b.dir, s.pod+".log"))
		b.t.Logf("the end of the log of %s:\n%s", s.pod, text[max(0, len(text)-6000):])
	}
}

// keep starts the process of a slot each time that it ends.
func (b *stopBed) keep(s *slot) {
	log, err := os.Create(filepath.Join(b.dir, s.pod+".log"))
	if err != nil {
		b.fault("%v", err)
		return
	}
	defer log.Close()
	for n := 0; b.ending.Err() == nil; n++ {
		name := fmt.Sprint(s.pod, "-", n)
		cmd, err := b.command(name, s)
		if err == nil {
			cmd.Stdout, cmd.Stderr = log, log
			err = cmd.Start()
		}
		if err != nil {
			b.fault("%v", err)
			return
		}
		s.mu.Lock()
		s.process, s.name = cmd.Process, name
		s.mu.Unlock()
		kill := context.AfterFunc(b.ending, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		kill()
		s.mu.Lock()
		if b.ending.Err() == nil && !s.stopped[name] {
			s.ended++
			_, _ = fmt.Fprintf(log, "%s ended, and was not stopped: %v\n", name, err)
		}
		s.mu.Unlock()
	}
}

// command returns the command of a process.
func (b *stopBed) command(name string, s *slot) (*exec.Cmd, error) {
	kubeconfig, clouds := filepath.Join(b.dir, name+".kubeconfig"), filepath.Join(b.dir, name+".clouds")
	err := errors.Join(
		os.WriteFile(kubeconfig, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'http://%s%s'}}]\n"+
			"contexts: [{name: c, context: {cluster: c}}]\n", b.address, prefix(name)), 0o600),
		os.WriteFile(clouds, bytes.ReplaceAll(b.sim.Clouds(), []byte("/identity"), []byte(prefix(name)+"/identity")), 0o600),
	)
	cmd := exec.CommandContext(context.WithoutCancel(b.t.Context()), os.Args[0],
		"controller", "--kubeconfig", kubeconfig, "--config", b.config, "--leader-elect-namespace", "default", "--log-level", "0",
		"--metrics-bind-address", s.metrics, "--health-probe-bind-address", "0", "--leader-api-bind-address", "0")
	cmd.Env = append(os.Environ(), asKuryr+"=1", "POD_NAME="+s.pod, "OS_CLOUD=kuryr", "OS_CLIENT_CONFIG_FILE="+clouds)
	return cmd, err
}

func (b *stopBed) fault(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// settled reports whether all three processes have joined, and own what they should.
func (b *stopBed) settled() bool {
	t, owned, owners := b.front.newest(), 0, 0
	for _, s := range b.slots {
		s.mu.Lock()
		uid := b.front.uid(s.name)
		s.mu.Unlock()
		if uid == "" {
			return false
		}
		if n := t.Owners[uid].Len(); n > 0 {
			owned, owners = owned+n, owners+1
		}
	}
	return owned == shard.Buckets && (b.active == 0 && owners == 3 || b.active == owners)
}

// stop stops a process, has it go on, and waits until it works or was started again. A long stop is one after
// which another process owns its keys; stop reports whether there was one. Before half of the stops requests are kept
// back, and executed after it.
func (b *stopBed) stop() (takenOver bool) {
	await(b.t, "three controllers", b.settled)
	s, long, late := b.slots[b.rng.IntN(3)], b.rng.IntN(4) > 0, b.rng.IntN(2) == 0
	pause := time.Duration(b.rng.Int64N(int64(time.Second)))
	if !long {
		pause *= 5
	}
	s.mu.Lock()
	name, process, uid := s.name, s.process, b.front.uid(s.name)
	owned := b.front.newest().Owners[uid].Len()
	s.stopped[name] = true
	s.mu.Unlock()
	release := func() {}
	if late {
		release = b.front.hold(name)
		kube.Pause(b.t.Context(), time.Duration(b.rng.Int64N(int64(400*time.Millisecond))))
	}
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		b.t.Logf("%s ended before it was stopped: %v", name, err)
		release()
		return false
	}
	if long && owned > 0 {
		await(b.t, "others to take over from "+name, func() bool { return b.front.newest().Owners[uid].Len() == 0 })
	} else if long {
		kube.Pause(b.t.Context(), shard.Others)
	}
	kube.Pause(b.t.Context(), pause)
	if b.rng.IntN(2) == 0 { // late requests are executed before the process goes on, or after it
		release()
		release = func() {}
	}
	_ = process.Signal(syscall.SIGCONT)
	kube.Pause(b.t.Context(), time.Duration(b.rng.Int64N(int64(200*time.Millisecond))))
	release()
	return long && owned > 0
}

// gauge returns how many buckets a process says that it owns; -1 if it does not answer.
func (b *stopBed) gauge(s *slot) int {
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://"+s.metrics+"/metrics", nil)
	b.must(err)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return -1
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	_, rest, _ := strings.Cut(string(text), "\nkuryr_owned_buckets ")
	n := -1
	_, _ = fmt.Sscan(rest, &n)
	return n
}

// uneven returns what is not as it should be when nothing changes.
func (b *stopBed) uneven() (out []string) {
	var pods corev1.PodList
	var ports v1.KuryrPortList
	b.must(b.client.List(b.t.Context(), &pods))
	b.must(b.client.List(b.t.Context(), &ports))
	held, inCloud := map[string]int{}, b.inCloudOf("ports", "device_owner=compute:kuryr")
	for i := range ports.Items {
		p := &ports.Items[i]
		if p.Spec.PodRef != nil {
			held[string(p.Spec.PodRef.UID)]++
		}
		if at := slices.Index(inCloud, p.Name); at >= 0 {
			inCloud = slices.Delete(inCloud, at, at+1)
		} else {
			out = append(out, "no port in the cloud for "+p.Name)
		}
		if phase := p.Status.Phase; !p.DeletionTimestamp.IsZero() || (phase == v1.PortBound) != (p.Spec.PodRef != nil) || phase != v1.PortBound && phase != v1.PortAvailable {
			out = append(out, fmt.Sprintf("%s is %s", p.Name, phase))
		}
	}
	for i := range pods.Items {
		if n := held[string(pods.Items[i].UID)]; n != 1 {
			out = append(out, fmt.Sprintf("pod %s has %d ports", pods.Items[i].Name, n))
		}
		delete(held, string(pods.Items[i].UID))
	}
	for _, id := range inCloud {
		out = append(out, "no KuryrPort for port "+id)
	}
	for uid := range held {
		out = append(out, "a port of no pod: "+uid)
	}
	return append(out, b.unevenServices()...)
}

// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/nodetest/frame"
	"github.com/kuryr-go/kuryr/test/cluster"
)

const agent = "neutron-openvswitch-agent"

// withAgents is onBed for a test of nodes with neutron-openvswitch-agent.
func withAgents(t testing.TB) *fixture {
	t.Helper()
	f := onBed(t)
	needsAgents(t)
	f.unbroken(t)
	return f
}

func needsAgents(t testing.TB) {
	t.Helper()
	if !byAgents() {
		t.Skip("SKIPPED: the bed's nodes have no " + agent + ": run `make e2e-ovs`, which brings up a bed with it")
	}
}

// byAgents reports whether the bed's nodes have neutron-openvswitch-agent in OVN's place.
func byAgents() bool { return os.Getenv("KURYR_BED_KIND") == "ovs" }

// agent stops, kills or starts the agent of a node, and waits until Neutron says so.
func (f *fixture) agent(t testing.TB, verb, node string) {
	t.Helper()
	must(cluster.Bed(t.Context(), verb, node+"-"+agent))(t)
	if verb == "start" {
		eventually(t, func() error { return f.connected(t.Context(), node) })
	}
}

// connected returns an error unless the agent of a node controls its switch.
func (f *fixture) connected(ctx context.Context, node string) error {
	out, err := f.OnNode(ctx, node, "ovs-vsctl", "--bare", "--columns=is_connected", "find", "controller")
	if err == nil && !strings.Contains(out, "true") {
		err = fmt.Errorf("the agent of %s is not connected to its switch", node)
	}
	return err
}

// portOfSwitch is a row of the table Port, as ovsdb-client prints it.
type portOfSwitch struct {
	action, name     string
	tag, mode, trunk string
}

// monitor follows the ports of a node's switch until stop, which returns all that it saw of
// pods' ports.
func monitor(t testing.TB, node string) (stop func() []portOfSwitch) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, "ovsdb-client", "monitor", "--format=json",
		os.Getenv("OVS_"+strings.ToUpper(node)), "Port", "name,tag,vlan_mode,trunks")
	out := must(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen []portOfSwitch
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tables := json.NewDecoder(out); ; {
			var table struct{ Data [][]any }
			if tables.Decode(&table) != nil {
				return
			}
			for _, row := range table.Data {
				if name := fmt.Sprint(row[2]); strings.HasPrefix(name, "tap") {
					seen = append(seen, portOfSwitch{fmt.Sprint(row[1]), name, fmt.Sprint(row[3]), fmt.Sprint(row[4]), fmt.Sprint(row[5])})
				}
			}
		}
	}()
	return func() []portOfSwitch {
		cancel()
		<-done
		_ = cmd.Wait() // it was killed
		return seen
	}
}

// A port without a tag would be in all networks. While pods come and go, also on parked ports,
// each port is added isolated, and never is without a tag.
func TestAgentsPortsAreNeverUntagged(t *testing.T) {
	f := withAgents(t)
	f.pools(t, map[string]any{"min": 2, "max": 6, "batch": 2, "ttl": "1h", "cooldown": "0s"})
	var stops []func() []portOfSwitch
	for _, node := range nodes {
		stops = append(stops, monitor(t, node))
	}
	for round := range 3 {
		var names []string
		for i := range 8 {
			names = append(names, fmt.Sprintf("r%d-%d", round, i))
		}
		began := time.Now()
		pods := f.pods(t, names...)
		t.Logf("%d pods run after %.1f s", len(pods), time.Since(began).Seconds())
		f.delete(t, pods...)
	}
	added, tagged := 0, 0
	for i, stop := range stops {
		for _, p := range stop() {
			switch isolated := p.tag == "4095" && p.mode == "trunk" && p.trunk == "4095"; {
			case p.action == "insert" && !isolated:
				t.Errorf("%s: port %s was added with tag %s, vlan_mode %s, trunks %s", nodes[i], p.name, p.tag, p.mode, p.trunk)
			case p.action == "insert":
				added++
			case p.action == "new" && !isolated:
				tagged++
				if n, err := strconv.Atoi(p.tag); err != nil || n < 1 || n > 4094 {
					t.Errorf("%s: port %s has tag %s, vlan_mode %s, trunks %s", nodes[i], p.name, p.tag, p.mode, p.trunk)
				}
			}
		}
	}
	t.Logf("ports were added %d times, and tagged %d times", added, tagged)
	if added < 24 || tagged < 24 {
		t.Errorf("24 pods ran, and the monitors saw %d ports added and %d tagged", added, tagged)
	}
}

// Pods start when Neutron has said ACTIVE since the agent tagged their port.
func TestAgentHasWiredWhenAPodStarts(t *testing.T) {
	f := withAgents(t)
	for _, name := range []string{"a", "b", "c"} {
		began := time.Now()
		pod := f.on(t, "n1", name)
		took := time.Since(began)
		kp := must(f.KuryrPortOf(t.Context(), pod))(t)
		at, is := kp.Status.Attachment, kp.Status
		if at == nil || !at.Tagged || !is.Active || is.ActiveFor != at.ContainerID {
			t.Errorf("pod %s runs, and its port's status is %+v, attachment %+v", name, is, at)
		}
		t.Logf("pod %s runs after %.1f s", name, took.Seconds())
		if port := must(f.Port(t.Context(), kp.Name))(t); port.Status != "ACTIVE" {
			t.Errorf("pod %s runs, and its port is %s in Neutron", name, port.Status)
		}
	}
}

// While the agent of a node is away, its pods go on, pods that are deleted leave nothing on the
// switch, and new ones wait and say why. Nobody but the agent has to come back.
func TestAgentAway(t *testing.T) {
	f := withAgents(t)
	pods := f.pods(t, "a", "b", "c") // n1, n2, n1
	t.Cleanup(func() { _, _ = cluster.Bed(context.Background(), "start", "n1-"+agent) })
	f.agent(t, "kill", "n1")
	f.reaches(t, pods[0], pods[1])
	f.reaches(t, pods[1], pods[0])
	f.delete(t, pods[2])
	late := must(f.Pod(t.Context(), f.namespace, "late", "n1"))(t)
	f.kubeletSays(t, late.Name, "is not connected to bridge br-int: start it")
	f.transfers(t, pods[1], pods[0])

	f.agent(t, "start", "n1")
	late = f.running(t, late.Name)
	f.reaches(t, pods[1], late)
	f.reaches(t, late, pods[0])
	f.delete(t, append(pods[:2], late)...)
	f.atRest(t)
}

// kubeletSays waits for an Event of the kubelet's on a pod.
func (f *fixture) kubeletSays(t testing.TB, pod, want string) {
	t.Helper()
	eventually(t, func() error {
		var events corev1.EventList
		if err := f.Client.List(t.Context(), &events, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		var seen []string
		for _, e := range events.Items {
			if e.InvolvedObject.Name != pod || e.Reason != "FailedCreatePodSandBox" {
				continue
			}
			if seen = append(seen, e.Message); strings.Contains(e.Message, want) {
				t.Logf("event on %s: %s: %s", pod, e.Reason, e.Message)
				return nil
			}
		}
		return fmt.Errorf("the kubelet does not say of pod %s %q, only %q", pod, want, seen)
	})
}

// A restart of the agent, which tags and filters all ports anew, costs running pods nothing.
func TestAgentRestart(t *testing.T) {
	f := withAgents(t)
	pods := f.pods(t, "a", "b", "c") // n1, n2, n1
	for _, to := range pods[1:] {
		f.reaches(t, pods[0], to)
	}
	const asked = 100
	ping := func(from, to *corev1.Pod) <-chan string {
		answer := make(chan string, 1)
		go func() {
			out, err := f.Exec(t.Context(), f.namespace, from.Name, "ping", "-q", "-i0.2", "-W1", fmt.Sprintf("-c%d", asked), to.Status.PodIP)
			answer <- fmt.Sprint(out, err)
		}()
		return answer
	}
	pings := map[string]<-chan string{"another node": ping(pods[1], pods[0]), "the node": ping(pods[2], pods[0])}
	f.agent(t, "stop", "n1")
	f.agent(t, "start", "n1")
	late := f.on(t, "n1", "late")
	for from, answer := range pings {
		out := <-answer
		t.Logf("pings from %s while the agent was restarted: %s", from, out)
		if !strings.Contains(out, fmt.Sprintf("%d packets transmitted, %d ", asked, asked)) {
			t.Errorf("pings from %s were lost while the agent was restarted", from)
		}
	}
	f.reaches(t, pods[1], late)
}

// Security groups hold between pods of a node and of two: a rule that names a group lets in its
// members only, as they come and go.
func TestAgentsSecurityGroups(t *testing.T) {
	f := withAgents(t)
	closed, friends := f.namedGroup(t, f.namespace), f.namedGroup(t, f.namespace+"-friends")
	if _, err := rules.Create(t.Context(), f.Neutron, rules.CreateOpts{
		SecGroupID: closed, Direction: rules.DirIngress, EtherType: rules.EtherType4, Protocol: rules.ProtocolTCP, RemoteGroupID: friends,
	}).Extract(); err != nil {
		t.Fatal(err)
	}
	f.configure(t, func(pods map[string]any) {
		of := func(role string, groups ...string) map[string]any {
			return map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": role}}, "securityGroupIDs": groups}
		}
		pods["securityGroups"] = []any{of("server", closed), of("friend-n1", friends), of("friend-n2", friends)}
	})
	var server *corev1.Pod
	eventually(t, func() error { // until the controller has seen the change
		server = f.on(t, "n1", "server")
		port := must(f.portOf(t, server))(t)
		if len(port.SecurityGroups) == 1 && port.SecurityGroups[0] == closed {
			return nil
		}
		f.delete(t, server)
		return fmt.Errorf("the port has groups %v, want %s", port.SecurityGroups, closed)
	})
	asks := func(from *corev1.Pod) error {
		_, err := f.Exec(t.Context(), f.namespace, from.Name, "curl", "-sS", "-m2", "http://"+server.Status.PodIP+":8080/hostname")
		return err
	}
	for _, node := range nodes {
		friend, stranger := f.on(t, node, "friend-"+node), f.on(t, node, "stranger-"+node)
		eventually(t, func() error { return asks(friend) })
		for range 3 {
			if asks(stranger) == nil {
				t.Errorf("a pod of %s that is in no group which the rule names reaches the server", node)
			}
		}
		if _, err := f.Exec(t.Context(), f.namespace, friend.Name, "ping", "-c1", "-W1", server.Status.PodIP); err == nil {
			t.Errorf("a rule for TCP lets in pings from %s", node)
		}
		f.delete(t, friend, stranger)
	}
	f.delete(t, server)
}

// A pod does not get into another network of its node, whose number in the switch it writes into
// its frames.
func TestAgentsNetworksAreApart(t *testing.T) {
	f := withNetworks(t)
	needsAgents(t)
	other := f.beside(t, "other", mode(v1.NetworkNamespace))
	evil, victim := f.sandbox(t, f.on(t, "n1", "attacker")), other.sandbox(t, other.on(t, "n1", "victim"))
	neighbour := other.sandbox(t, other.on(t, "n1", "neighbour"))
	tag := func(s sandboxed) uint16 {
		port := must(f.portOf(t, s.Pod))(t)
		text := must(f.OnNode(t.Context(), "n1", "ovs-vsctl", "get", "port", "tap"+port.ID[:11], "tag"))(t)
		return uint16(must(strconv.ParseUint(text, 10, 12))(t))
	}
	own, others := tag(evil), tag(victim)
	if own == others {
		t.Fatalf("two networks have tag %d", own)
	}
	from := func(s sandboxed, text string) []byte {
		return frame.UDP(victim.mac, s.mac, netip.AddrPortFrom(s.ip, 9), netip.AddrPortFrom(victim.ip, 9), []byte(text))
	}
	const honest, lie = "of a pod in the network, and long enough for Ethernet", "of a pod of another network, and long enough for Ethernet"
	if !other.hears(t, victim, []byte(honest), neighbour, from(neighbour, honest)) {
		t.Fatal("what a neighbour sends does not come in: the rest would say nothing")
	}
	frames := [][]byte{from(evil, lie)}
	for _, tag := range []uint16{others, own, 4095, 0} {
		frames = append(frames, frame.Tagged(from(evil, lie), tag))
	}
	if f.hears(t, victim, []byte(lie), evil, frames...) {
		t.Errorf("a pod hears what a pod of another network sends with tag %d", others)
	}
}

// The firewall driver iptables_hybrid filters in a bridge that Kuryr does not make. Pods of a node
// with it get no port, an Event and the preflight say what to do, and doing it is enough.
func TestAgentWithIptablesHybrid(t *testing.T) {
	f := withAgents(t)
	driver := filepath.Join(os.Getenv("KURYR_BED"), "ovs", "firewall-driver-n2")
	restart := func(hybrid bool) {
		t.Helper()
		f.agent(t, "stop", "n2")
		f.agent(t, "start", "n2")
		eventually(t, func() error { return f.hybridPlug(t, "n2", hybrid) })
	}
	if err := os.WriteFile(driver, []byte("iptables_hybrid"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if os.Remove(driver) == nil {
			_, _ = cluster.Bed(context.Background(), "stop", "n2-"+agent)
			_, _ = cluster.Bed(context.Background(), "start", "n2-"+agent)
		}
	})
	restart(true)
	pod := must(f.Pod(t.Context(), f.namespace, "waits", "n2"))(t)
	f.event(t, pod.Name, "firewall_driver = openvswitch")
	cm := must(f.Kube.CoreV1().ConfigMaps(kuryrNamespace).Get(t.Context(), "kuryr-config", getOptions))(t)
	var document object
	if err := yaml.Unmarshal([]byte(cm.Data["kuryr.yaml"]), &document); err != nil {
		t.Fatal(err)
	}
	r := &readiness{fixture: f, kuryr: build(t, "kuryr"), dir: t.TempDir()}
	if found := r.findings(t, document); !slices.ContainsFunc(found, func(f finding) bool {
		return f.Name == "NodeAgentDown" && strings.Contains(f.Object, "n2") && strings.Contains(f.Message, "iptables_hybrid")
	}) {
		t.Errorf("preflight finds %+v, want NodeAgentDown with iptables_hybrid", found)
	}
	if err := os.Remove(driver); err != nil {
		t.Fatal(err)
	}
	restart(false)
	f.running(t, pod.Name)
}

// hybridPlug returns an error unless the agent of a node has told Neutron so.
func (f *fixture) hybridPlug(t testing.TB, node string, want bool) error {
	agents := request(t, f.Neutron, http.MethodGet, f.Neutron.ServiceURL("agents")+"?binary="+agent+"&host="+node, nil)["agents"]
	for _, a := range agents.([]any) {
		if got := a.(object)["configurations"].(object)["ovs_hybrid_plug"]; got == want {
			return nil
		}
	}
	return fmt.Errorf("no agent of %s has ovs_hybrid_plug %v: %v", node, want, agents)
}

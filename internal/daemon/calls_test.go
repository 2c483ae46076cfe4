// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// A pod's port is not moved from its interface to another one of the same pod.
func TestSecondInterfaceOfAContainer(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	first := n.do(request("ADD", "c1", "/run/netns/a"))
	n.rests(portA, "c1")
	second := request("ADD", "c1", "/run/netns/a")
	second.IfName = "net1"
	n.refuse(second, cni.CodeInvalidConfig)
	second.Command = "DEL" // as the runtime sends after a failed ADD
	n.do(second)
	n.rests(portA, "c1")
	check := request("CHECK", "c1", "/run/netns/a")
	prev, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	check.Config = json.RawMessage(strings.TrimSuffix(string(check.Config), "}") + `,"prevResult":` + string(prev) + `}`)
	n.do(check)
	n.do(request("DEL", "c1", "/run/netns/a"))
	n.rests(portA, "")
	n.do(func() cni.Request { second.Command = "ADD"; return second }()) // now the port is free for any interface
}

func TestAddPlugsAndTells(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	got, err := json.Marshal(n.do(request("ADD", "c1", "/run/netns/a")))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"cniVersion":"1.1.0","dns":{"nameservers":["10.0.0.2"]},` +
		`"interfaces":[{"name":"tapa28c7404-74"},{"mac":"fa:16:3e:00:00:01","mtu":1442,"name":"eth0","sandbox":"/run/netns/a"}],` +
		`"ips":[{"address":"10.0.0.5/24","gateway":"10.0.0.1","interface":1},{"address":"fd00::5/64","interface":1}],` +
		`"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"},{"dst":"10.96.0.0/16","gw":"10.0.0.254"}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("result of ADD (-want +got):\n%s", diff)
	}
	n.rests(portA, "c1")
	i := n.plugged[portA]
	if i.Pod != "default/web" || i.Netns != "/run/netns/a" || !i.Default || len(i.Addresses) != 2 || i.MTU != 1442 || i.MAC.String() != "fa:16:3e:00:00:01" {
		t.Errorf("plugged %+v", i)
	}
	n.do(request("DEL", "c1", "/run/netns/a"))
	n.rests(portA, "")
	if n.api.reports != 2 {
		t.Errorf("one pod took %d writes of its attachment, want 2", n.api.reports)
	}
}

func TestAddTwiceIsTheSame(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	first := n.do(request("ADD", "c1", "/run/netns/a"))
	second := n.do(request("ADD", "c1", "/run/netns/a"))
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("second ADD (-first +second):\n%s", diff)
	}
	n.rests(portA, "c1")
}

func TestAddWaitsForItsOwnPort(t *testing.T) {
	n := newNode(t).start()
	done := make(chan error, 1)
	go func() { _, err := n.call(t.Context(), request("ADD", "c1", "/run/netns/a")); done <- err }()
	n.api.put(kuryrPort(portB, uidB)) // of an earlier pod of the same name
	leaving := kuryrPort("c28c7404-7495-4557-b7fc-3e293508dbc6", uidA)
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	n.api.put(leaving)
	select {
	case err := <-done:
		t.Fatalf("ADD has taken another's port: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	n.api.put(kuryrPort(portA, uidA))
	if err := <-done; err != nil {
		t.Fatalf("ADD = %v", err)
	}
	n.rests(portA, "c1")
}

// The kubelet gives a static pod's sandbox a UID that is unknown to the API.
func TestAddOfStaticPod(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	req := request("ADD", "c1", "/run/netns/a")
	req.Args = strings.ReplaceAll(req.Args, uidA, "0123456789abcdef0123456789abcdef")
	n.do(req)
	n.rests(portA, "c1")
}

// A static pod's mirror pod was made again, and the former one's port is still bound. The sandbox
// gets the port that was bound last: the other one is about to be returned.
func TestAddOfStaticPodWithTwoPorts(t *testing.T) {
	const early, late = "2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05.51Z" // as text, the other way round
	for _, test := range []struct{ name, boundA, boundB, want string }{
		{"the second is newer", early, late, portB},
		{"the first is newer", late, early, portA},
		{"an earlier version bound the second", early, "", portA},
		{"an earlier version bound the first", "", late, portB},
		{"an earlier version bound both", "", "", portA}, // always the same one
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for range 8 { // maps in Go have no order
				n := newNode(t)
				for _, p := range []struct{ port, uid, at string }{{portA, uidA, test.boundA}, {portB, uidB, test.boundB}} {
					port := kuryrPort(p.port, p.uid)
					if p.at != "" {
						port.Annotations = map[string]string{v1.BoundAnnotation: p.at}
					}
					n.api.put(port)
				}
				n.start()
				req := request("ADD", "c1", "/run/netns/a")
				req.Args = strings.ReplaceAll(req.Args, uidA, "0123456789abcdef0123456789abcdef")
				n.do(req)
				if n.where(test.want) != "c1" {
					t.Fatalf("ADD of a static pod, with ports %s bound at %q and %s at %q, has not plugged %s", portA, test.boundA, portB, test.boundB, test.want)
				}
				n.end()
			}
		})
	}
}

// errBusy is the error of a binding driver with exit code 75.
var errBusy = fmt.Errorf("%w: %w", plug.ErrDriver, plug.ErrTryAgain)

func TestAddTimeouts(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(n *node)
		code    uint
		says    string
	}{
		"no port":     {func(*node) {}, cni.CodeNoPort, "for a port for pod default/web on node n1"},
		"other's":     {func(n *node) { n.api.put(kuryrPort(portB, uidB)) }, cni.CodeNoPort, portB + " still belongs to an earlier pod"},
		"not wired":   {func(n *node) { n.unwired[portA] = true; n.api.put(kuryrPort(portA, uidA)) }, cni.CodeNotWired, "bound and plugged"},
		"not active":  {func(n *node) { n.api.put(ofType("midonet")) }, cni.CodeNotWired, portA},
		"no driver":   {func(n *node) { n.api.put(ofType("unknown")) }, cni.CodeUnknownType, "unknown"},
		"no switch":   {func(n *node) { n.fail["plug"] = plug.ErrDataPath; n.api.put(kuryrPort(portA, uidA)) }, cni.CodeDataPath, portA},
		"bad driver":  {func(n *node) { n.fail["plug"] = plug.ErrDriver; n.api.put(kuryrPort(portA, uidA)) }, cni.CodeDriver, portA},
		"driver busy": {func(n *node) { n.fail["plug"] = errBusy; n.api.put(ofType("midonet")) }, cni.CodeTryAgain, "later"},
		"bad data":    {func(n *node) { n.fail["plug"] = plug.ErrInvalid; n.api.put(kuryrPort(portA, uidA)) }, cni.CodeInvalidConfig, portA},
		"netns gone":  {func(n *node) { n.fail["plug"] = plug.ErrNoNetns; n.api.put(kuryrPort(portA, uidA)) }, cni.CodeInvalidNetns, portA},
		"no netns":    {func(n *node) { delete(n.live, "/run/netns/a") }, cni.CodeInvalidNetns, "/run/netns/a"}, // even without a port
		"odd failure": {func(n *node) { n.fail["plug"] = errors.New("odd"); n.api.put(kuryrPort(portA, uidA)) }, cni.CodeInternal, "odd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.timeout = 300 * time.Millisecond
			tc.prepare(n)
			n.start()
			_, err := n.call(t.Context(), request("ADD", "c1", "/run/netns/a"))
			if codeOf(err) != tc.code || !strings.Contains(fmt.Sprint(err), tc.says) {
				t.Errorf("ADD = %v (code %d), want code %d and %q", err, codeOf(err), tc.code, tc.says)
			}
			n.rests(portA, "") // a failed ADD leaves nothing
		})
	}
}

func ofType(typ string) *v1.KuryrPort {
	p := kuryrPort(portA, uidA)
	p.Spec.VIF.Type = typ
	return p
}

func TestAddWaitsForActiveWhereTheNodeDoesNotSeeIt(t *testing.T) {
	n := newNode(t).start()
	n.api.put(ofType("midonet"))
	done := make(chan error, 1)
	go func() { _, err := n.call(t.Context(), request("ADD", "c1", "/run/netns/a")); done <- err }()
	n.eventually("the attachment is reported before", func() bool { return n.api.attachment(portA) == "c1" })
	n.api.change(portA, func(p *v1.KuryrPort) { p.Status.Active = true })
	if err := <-done; err != nil {
		t.Fatalf("ADD = %v", err)
	}
}

// What the SDN said before the agent tagged the port for this sandbox may be about an earlier one.
func TestAddWaitsForActiveOfThisSandboxWhereTheAgentWires(t *testing.T) {
	n := newNode(t).start()
	port := ofType("ovs")
	port.Spec.VIF.Details = map[string]string{v1.DetailWiredBy: v1.WiredByAgent}
	port.Status.Active, port.Status.ActiveFor = true, "before"
	n.api.put(port)
	done := make(chan error, 1)
	go func() { _, err := n.call(t.Context(), request("ADD", "c1", "/run/netns/a")); done <- err }()
	n.eventually("the tag is reported", func() bool {
		tagged := false
		n.api.change(portA, func(p *v1.KuryrPort) {
			tagged = p.Status.Attachment != nil && p.Status.Attachment.ContainerID == "c1" && p.Status.Attachment.Tagged
		})
		return tagged
	})
	var i plug.Interface
	n.set(func() { i = n.plugged[portA] })
	if !i.Agent || i.Hybrid {
		t.Errorf("plugged with Agent %v, Hybrid %v; want the agent's port", i.Agent, i.Hybrid)
	}
	select {
	case err := <-done:
		t.Fatalf("ADD = %v before the SDN reported the port active for this sandbox", err)
	default:
	}
	n.api.change(portA, func(p *v1.KuryrPort) { p.Status.ActiveFor = "c1" })
	if err := <-done; err != nil {
		t.Fatalf("ADD = %v", err)
	}
}

func TestAddSaysWhatToDoWhereTheAgentsPortIsNotActive(t *testing.T) {
	n := newNode(t)
	n.timeout = 300 * time.Millisecond
	n.start()
	port := ofType("ovs")
	port.Spec.VIF.Details = map[string]string{v1.DetailWiredBy: v1.WiredByAgent}
	n.api.put(port)
	_, err := n.call(t.Context(), request("ADD", "c1", "/run/netns/a"))
	for _, words := range []string{portA, "node n1", "neutron-openvswitch-agent", "openstack port show"} {
		if codeOf(err) != cni.CodeNotWired || !strings.Contains(fmt.Sprint(err), words) {
			t.Errorf("ADD = %v (code %d), want code %d and %q", err, codeOf(err), cni.CodeNotWired, words)
		}
	}
	n.rests(portA, "")
}

func TestAddWhileTheAPIWasNeverSeen(t *testing.T) {
	n := newNode(t)
	n.timeout = 200 * time.Millisecond
	n.api.setDown(true)
	n.startAnyhow()
	n.refuse(request("ADD", "c1", "/run/netns/a"), cni.CodeTryAgain)
	n.refuse(request("STATUS", "", ""), cni.CodePluginNotAvailable)
	n.do(request("DEL", "c1", "/run/netns/a"))
}

func TestAddEndsWhenNobodyWaits(t *testing.T) {
	n := newNode(t)
	n.unwired[portA] = true
	n.start()
	n.api.put(kuryrPort(portA, uidA))
	ctx, hangUp := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := n.call(ctx, request("ADD", "c1", "/run/netns/a")); done <- err }()
	n.eventually("the ADD waits", func() bool { return n.count("wait") == 1 })
	hangUp()
	if err := <-done; err == nil {
		t.Fatal("ADD succeeded after it was given up")
	}
	n.rests(portA, "")
}

func TestAddGivesWayToDel(t *testing.T) {
	n := newNode(t)
	n.unwired[portA] = true
	n.start()
	n.api.put(kuryrPort(portA, uidA))
	done := make(chan error, 1)
	go func() { _, err := n.call(t.Context(), request("ADD", "c1", "/run/netns/a")); done <- err }()
	n.eventually("the ADD waits", func() bool { return n.count("wait") == 1 })
	n.do(request("DEL", "c1", "/run/netns/a"))
	if err := <-done; codeOf(err) != cni.CodeTryAgain {
		t.Errorf("ADD = %v, want code %d", err, cni.CodeTryAgain)
	}
	n.rests(portA, "")
}

func TestAddEndsWhenThePodIsGone(t *testing.T) {
	for name, release := range map[string]func(n *node){
		"unbound": func(n *node) { n.api.change(portA, func(p *v1.KuryrPort) { p.Spec.PodRef = nil }) },
		"another": func(n *node) { n.api.change(portA, func(p *v1.KuryrPort) { p.Spec.PodRef.UID = uidB }) },
		"removed": func(n *node) { n.api.remove(portA) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.unwired[portA] = true
			n.start()
			n.api.put(kuryrPort(portA, uidA))
			done := make(chan error, 1)
			go func() { _, err := n.call(t.Context(), request("ADD", "c1", "/run/netns/a")); done <- err }()
			n.eventually("the ADD waits", func() bool { return n.count("wait") == 1 })
			release(n)
			if err := <-done; codeOf(err) != cni.CodePodGone {
				t.Errorf("ADD = %v, want code %d", err, cni.CodePodGone)
			}
			n.rests(portA, "")
		})
	}
}

// The kubelet makes a new sandbox for a pod, and the old sandbox's DEL comes late.
func TestNewSandboxTakesThePort(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.do(request("ADD", "c2", "/run/netns/b"))
	n.rests(portA, "c2")
	n.do(request("DEL", "c1", "/run/netns/a"))
	n.do(request("DEL", "c1", ""))
	n.rests(portA, "c2")
	n.do(request("DEL", "c2", ""))
	n.rests(portA, "")
}

func TestAddTakesTheNewPortOfThePod(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.api.change(portA, func(p *v1.KuryrPort) { p.Spec.PodRef = nil })
	n.api.put(kuryrPort(portB, uidA))
	n.eventually("the daemon has seen it", func() bool {
		p := n.daemon.ports.port(portB)
		return p != nil && n.daemon.ports.port(portA).Spec.PodRef == nil
	})
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.rests(portA, "")
	n.rests(portB, "c1")
}

func TestAddFromArgs(t *testing.T) {
	n := newNode(t)
	n.api.setDown(true)
	n.startAnyhow()
	req := request("ADD", "c1", "/run/netns/a")
	req.Args = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;PORT_UUID=" + portA + ",IPV4=10.0.0.15/16,GW=10.0.0.1,PORT_TYPE=midonet"
	result := n.do(req)
	if got := result.IPs[0].Address.String(); got != "10.0.0.15/16" || result.Routes[0].GW.String() != "10.0.0.1" {
		t.Errorf("ADD = %+v", result)
	}
	if n.where(portA) != "c1" || n.plugged[portA].Type != "midonet" {
		t.Errorf("plugged %+v", n.plugged[portA])
	}
	n.do(request("DEL", "c1", ""))
	if n.where(portA) != "" || n.api.reports != 0 {
		t.Errorf("after DEL the port is in %q, and %d reports were sent", n.where(portA), n.api.reports)
	}
}

func TestDel(t *testing.T) {
	n := newNode(t).start()
	n.do(request("DEL", "never-seen", "/run/netns/a"))
	n.do(request("DEL", "never-seen", ""))
	if n.count("unplug") != 0 {
		t.Error("a DEL of something unknown reached the driver")
	}

	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.rests(portA, "c1")
	n.set(func() { n.fail["unplug"] = plug.ErrDriver })
	n.refuse(request("DEL", "c1", "/run/netns/a"), cni.CodeDriver)
	n.rests(portA, "c1") // for the runtime to repeat
	n.set(func() { delete(n.fail, "unplug") })

	n.api.setDown(true)
	n.do(request("DEL", "c1", "/run/netns/a"))
	if n.where(portA) != "" {
		t.Error("DEL with the API away has left the port plugged")
	}
	n.api.setDown(false)
	n.rests(portA, "")
}

// With an empty CNI_NETNS, or the node's own, nothing is done in a namespace.
func TestDelNeverTouchesTheNodesNamespace(t *testing.T) {
	for _, netns := range []string{"", ownNetns} {
		n := newNode(t).start()
		n.api.put(kuryrPort(portA, uidA))
		n.do(request("ADD", "c1", "/run/netns/a"))
		var got []string
		n.daemon.Drivers = spy{n.driver, func(i plug.Interface) { got = append(got, i.Netns) }}
		n.do(request("DEL", "c1", netns))
		if diff := cmp.Diff([]string{""}, got); diff != "" {
			t.Errorf("DEL with netns %q unplugged in (-want +got):\n%s", netns, diff)
		}
		n.rests(portA, "")
		n.refuse(request("ADD", "c2", ownNetns), cni.CodeInvalidNetns)
	}
}

type spy struct {
	*driver
	unplug func(plug.Interface)
}

func (s spy) Driver(string) (plug.Driver, error) { return s, nil }

func (s spy) Unplug(ctx context.Context, i plug.Interface) error {
	s.unplug(i)
	return s.driver.Unplug(ctx, i)
}

func TestCheck(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	result, _ := json.Marshal(n.do(request("ADD", "c1", "/run/netns/a")))
	check := request("CHECK", "c1", "/run/netns/a")
	withPrev := func(prev string) cni.Request {
		check.Config = json.RawMessage(`{"cniVersion":"1.1.0","name":"kuryr","prevResult":` + prev + `}`)
		return check
	}
	n.do(withPrev(string(result)))
	n.refuse(withPrev(`null`), cni.CodeInvalidConfig)
	n.refuse(withPrev(`"x"`), cni.CodeDecoding)
	n.refuse(withPrev(`{"ips":[null]}`), cni.CodeNotAsPlugged)
	n.refuse(withPrev(`{"ips":[{"address":"10.0.0.5"}]}`), cni.CodeDecoding)
	n.refuse(withPrev(`{"ips":[{"address":"10.9.9.9/24"}]}`), cni.CodeNotAsPlugged)
	check.ContainerID = "c9"
	n.refuse(withPrev(string(result)), cni.CodeUnknownContainer)
	check.ContainerID = "c1"
	n.set(func() { n.fail["check"] = errBusy })
	n.refuse(withPrev(string(result)), cni.CodeTryAgain)
	n.set(func() { delete(n.plugged, portA) })
	n.refuse(withPrev(string(result)), cni.CodeNotAsPlugged)
}

func TestGC(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.rests(portA, "c1")
	gc := func(config string) cni.Request {
		return cni.Request{Command: "GC", Config: json.RawMessage(config)}
	}
	n.refuse(gc(`{"cniVersion":"1.1.0","name":"kuryr"}`), cni.CodeInvalidConfig)
	n.do(gc(`{"cniVersion":"1.1.0","name":"another","cni.dev/valid-attachments":[]}`))
	n.do(gc(`{"cniVersion":"1.1.0","name":"kuryr","cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]}`))
	n.rests(portA, "c1")
	n.do(gc(`{"cniVersion":"1.1.0","name":"kuryr","cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth1"}]}`))
	n.rests(portA, "")
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.do(gc(`{"cniVersion":"1.1.0","name":"kuryr","cni.dev/valid-attachments":null}`)) // libcni writes an empty list in this form
	n.rests(portA, "")
}

func TestStatusFollowsTheDataPath(t *testing.T) {
	n := newNode(t).start()
	n.do(request("STATUS", "", ""))
	n.set(func() { n.fail["ready"] = plug.ErrDataPath })
	n.refuse(request("STATUS", "", ""), cni.CodePluginNotAvailable)
}

// Pods do not wait for one another: if one is stuck, the others of the node continue.
func TestCallsOfOthersGoOn(t *testing.T) {
	n := newNode(t)
	n.unwired[portA] = true
	n.start()
	n.api.put(kuryrPort(portA, uidA))
	go func() { _, _ = n.call(t.Context(), request("ADD", "stuck", "/run/netns/a")) }()
	n.eventually("the first waits", func() bool { return n.count("wait") == 1 })
	var all sync.WaitGroup
	for i := range 30 {
		name := fmt.Sprintf("%08d-7495-4557-b7fc-3e293508dbc6", i)
		port := kuryrPort(name, uidA)
		port.Spec.PodRef.Name = fmt.Sprint("other", i)
		n.api.put(port)
		all.Go(func() {
			req := request("ADD", fmt.Sprint("o", i), "/run/netns/b")
			req.Args = strings.ReplaceAll(req.Args, "=web;", fmt.Sprintf("=other%d;", i))
			if _, err := n.call(t.Context(), req); err != nil {
				t.Errorf("ADD %d = %v", i, err)
			}
			n.rests(name, req.ContainerID)
			req.Command = "DEL"
			if _, err := n.call(t.Context(), req); err != nil {
				t.Errorf("DEL %d = %v", i, err)
			}
			n.rests(name, "")
		})
	}
	all.Wait()
}

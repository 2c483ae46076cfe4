// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/plug"
)

func newParkingNode(t testing.TB) *node {
	n := newNode(t)
	n.park = true
	return n
}

// free returns a port without a pod.
func free(name string) *v1.KuryrPort {
	p := kuryrPort(name, uidA)
	p.Spec.PodRef = nil
	return p
}

// parks checks that exactly these ports become parked, and stay parked.
func (n *node) parks(ports ...string) {
	n.t.Helper()
	is := func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, port := range ports {
			if !n.machine.parked[port] {
				return false
			}
		}
		return len(n.machine.parked) == len(ports)
	}
	n.eventually(fmt.Sprintf("parked are %v and no others", ports), is)
	n.eventually("the daemon knows", func() bool { return n.daemon.parker.count() == len(ports) })
}

func (n *node) look() {
	n.t.Helper()
	if err := n.daemon.parker.look(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

func TestFreePortsAreParked(t *testing.T) {
	n := newParkingNode(t)
	n.api.put(free(portA))
	bound := kuryrPort(portB, uidB)
	n.api.put(bound)
	trunk := free("c28c7404-7495-4557-b7fc-3e293508dbc6")
	trunk.Spec.VIF.Type, trunk.Spec.VIF.VLANID = "vlan", 5
	n.api.put(trunk)
	n.start()
	n.parks(portA)

	n.api.change(portB, func(p *v1.KuryrPort) { p.Spec.PodRef = nil })
	n.parks(portA, portB)
	n.api.change(portB, func(p *v1.KuryrPort) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
	n.parks(portA)
	n.api.remove(portB)
	n.api.remove(portA)
	n.parks()
}

// The life of a port: parked, a pod's, parked again, deleted.
func TestPodGetsTheParkedPort(t *testing.T) {
	n := newParkingNode(t)
	n.api.put(free(portA))
	n.start()
	for k := range 3 {
		n.parks(portA)
		n.api.change(portA, func(p *v1.KuryrPort) { p.Spec.PodRef = kuryrPort(portA, uidA).Spec.PodRef })
		n.do(request("ADD", fmt.Sprint("c", k), "/run/netns/a"))
		n.rests(portA, fmt.Sprint("c", k))
		n.parks()
		n.do(request("DEL", fmt.Sprint("c", k), "/run/netns/a"))
		n.rests(portA, "")
		n.api.change(portA, func(p *v1.KuryrPort) { p.Spec.PodRef = nil })
	}
	n.parks(portA)
	if got, want := n.daemon.parker.parking.Counts(), (plug.Counts{Claimed: 3}); got != want {
		t.Errorf("pods got their ports %+v, want %+v", got, want)
	}
	n.api.remove(portA)
	n.parks()
}

// What a call is plugging is not parked, whether the call succeeds or not.
func TestPluggingAParkedPort(t *testing.T) {
	n := newParkingNode(t)
	n.api.put(free(portA))
	n.start()
	n.parks(portA)
	done := n.daemon.parker.plugging(portA)
	if got := n.daemon.parker.count(); got != 0 {
		t.Errorf("%d ports count as parked while a call plugs the only one", got)
	}
	done()
}

// neutron-openvswitch-agent applies new security groups to a port that it has at some later time. A
// parked port with other groups than before, or with unknown ones, is plugged as a new one.
func TestParkedPortOfTheAgentWithOtherGroups(t *testing.T) {
	for name, test := range map[string]struct {
		byAgent bool
		groups  []string
		restart bool
		want    int
	}{
		"the same, in another order": {true, []string{"b", "a"}, false, 0},
		"others":                     {true, []string{"a", "c"}, false, 1},
		"unknown after a restart":    {true, []string{"a", "b"}, true, 1},
		"others, on OVN":             {false, []string{"a", "c"}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := newParkingNode(t)
			port := free(portA)
			port.Generation, port.Spec.SecurityGroupIDs = 1, []string{"a", "b"}
			if test.byAgent {
				port.Spec.VIF.Details = map[string]string{v1.DetailWiredBy: v1.WiredByAgent}
			}
			n.api.put(port)
			n.start()
			n.parks(portA)
			if test.restart {
				n.end()
				n.start()
				n.parks(portA)
			}
			n.api.change(portA, func(p *v1.KuryrPort) {
				p.Spec.PodRef, p.Spec.SecurityGroupIDs = kuryrPort(portA, uidA).Spec.PodRef, test.groups
				p.Status.AppliedSecurityGroupIDs, p.Status.Active, p.Status.ActiveFor = test.groups, true, "c1"
			})
			n.do(request("ADD", "c1", "/run/netns/a"))
			if got := n.count("unpark"); got != test.want {
				t.Errorf("the port was unparked %d times before the pod got it, want %d", got, test.want)
			}
			n.rests(portA, "c1")
		})
	}
}

// A port that is not returned to a pool is removed from the node, too.
func TestPortDeletedAfterItsPodIsUnparked(t *testing.T) {
	n := newParkingNode(t)
	n.api.put(free(portA))
	n.start()
	n.parks(portA)
	n.api.change(portA, func(p *v1.KuryrPort) { p.Spec.PodRef = kuryrPort(portA, uidA).Spec.PodRef })
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.api.remove(portA)
	n.do(request("DEL", "c1", "/run/netns/a"))
	n.parks()
	n.rests(portA, "")
}

func TestRestartKeepsWhatIsParked(t *testing.T) {
	n := newParkingNode(t)
	n.api.put(free(portA))
	n.start()
	n.parks(portA)
	n.end()
	n.api.setDown(true)
	n.startAnyhow()
	n.api.setDown(false)
	n.parks(portA)
	n.look()
	if n.count("park") != 1 || n.count("unpark") != 0 {
		t.Errorf("after a restart there were %d Park and %d Unpark, want those of before: 1 and 0", n.count("park"), n.count("unpark"))
	}
	n.end()
	n.park = false // from now on parking is off
	n.start()
	n.parks()
}

// While the API server is unavailable, no port is known to be deleted.
func TestParkedStaysWithoutTheAPI(t *testing.T) {
	n := newParkingNode(t)
	n.api.put(free(portA))
	n.start()
	n.parks(portA)
	n.api.setDown(true)
	n.look()
	n.daemon.sweep(t.Context())
	n.parks(portA)
	n.end()
	n.startAnyhow()
	n.daemon.parker.gone(portA)
	n.daemon.sweep(t.Context())
	time.Sleep(20 * time.Millisecond)
	if n.count("unpark") != 0 {
		t.Error("a port was unparked, and nobody knows whether it is gone")
	}
	n.api.setDown(false)
	n.parks(portA)
}

// An incomplete port is repaired, and an unknown one is removed.
func TestParkerMends(t *testing.T) {
	n := newParkingNode(t)
	n.api.put(free(portA))
	n.set(func() { n.machine.parked[portA], n.machine.parked[portB] = false, true })
	n.start()
	n.parks(portA)
	n.set(func() { delete(n.machine.parked, portA) })
	n.look()
	n.parks(portA)
	n.set(func() { n.machine.parked[portA] = false })
	n.look()
	n.parks(portA)
}

func TestParkingFails(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		again bool
	}{
		"for now":      {plug.ErrDataPath, true},
		"on this node": {plug.ErrCannotPark, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newParkingNode(t)
			n.api.put(free(portA))
			n.set(func() { n.fail["park"] = fmt.Errorf("parking: %w", test.err) })
			n.start()
			n.eventually("it was tried", func() bool { return n.count("park") > 0 })
			n.set(func() { delete(n.fail, "park") })
			if test.again {
				n.parks(portA)
				return
			}
			n.set(func() { delete(n.machine.parked, portA) })
			n.look()
			n.look()
			n.api.change(portA, func(p *v1.KuryrPort) { p.Spec.PodRef = kuryrPort(portA, uidA).Spec.PodRef })
			n.do(request("ADD", "c1", "/run/netns/a")) // works as without parking
			n.rests(portA, "c1")
			if got := n.count("park"); got != 1 {
				t.Errorf("it was tried %d times", got)
			}
		})
	}
}

// An ADD for a port that is being parked waits until that ends.
func TestAddWhileParking(t *testing.T) {
	n := newParkingNode(t)
	n.api.put(free(portA))
	parking, go_on := make(chan struct{}), make(chan struct{})
	n.set(func() {
		n.hook = func(step string) {
			if step == "park" {
				close(parking)
				<-go_on
			}
		}
	})
	n.start()
	<-parking
	n.api.change(portA, func(p *v1.KuryrPort) { p.Spec.PodRef = kuryrPort(portA, uidA).Spec.PodRef })
	done := make(chan error, 1)
	go func() { _, err := n.call(t.Context(), request("ADD", "c1", "/run/netns/a")); done <- err }()
	select {
	case err := <-done:
		t.Fatalf("ADD = %v while the port was being parked", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(go_on)
	if err := <-done; err != nil {
		t.Fatalf("ADD = %v", err)
	}
	n.rests(portA, "c1")
	n.parks()
}

// Invariant 3, for parking: the daemon is killed between any two effects.
func TestKilledWhileParking(t *testing.T) {
	for _, step := range []string{"park", "parked", "unpark", "unparked"} {
		for _, then := range []string{"free", "bound", "gone"} {
			t.Run(step+"/"+then, func(t *testing.T) {
				t.Parallel()
				n := newParkingNode(t)
				n.startAnyhow()
				killed := n.killAt(step)
				n.api.put(free(portA))
				if strings.HasPrefix(step, "unpark") {
					n.parks(portA)
					n.api.change(portA, func(p *v1.KuryrPort) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
				}
				<-killed
				n.set(func() { n.hook = nil })
				n.api.remove(portA)
				switch then {
				case "free":
					n.api.put(free(portA))
					n.start()
					n.parks(portA)
				case "bound":
					n.api.put(kuryrPort(portA, uidA))
					n.start()
					n.do(request("ADD", "c1", "/run/netns/a"))
					n.rests(portA, "c1")
					n.parks()
				default:
					n.start()
					n.parks()
				}
			})
		}
	}
}

// The same for calls with a port from the parking.
func TestKilledWithAParkedPort(t *testing.T) {
	for _, step := range []string{"plug", "plugged", "wait", "unplug", "unplugged"} {
		for _, then := range []string{"ADD again", "ADD of a new sandbox", "DEL", "DEL of a dead sandbox", "nothing, and the sandbox is gone"} {
			t.Run(step+"/"+then, func(t *testing.T) {
				t.Parallel()
				n := newParkingNode(t)
				n.api.put(free(portA))
				n.start()
				n.parks(portA)
				n.api.change(portA, func(p *v1.KuryrPort) { p.Spec.PodRef = kuryrPort(portA, uidA).Spec.PodRef })
				command := "ADD"
				if strings.HasPrefix(step, "unplug") {
					n.do(request("ADD", "c1", "/run/netns/a"))
					command = "DEL"
				}
				killed := n.killAt(step)
				n.cutOff(request(command, "c1", "/run/netns/a"), killed)
				n.afterCrash(then)
				if then == "ADD of a new sandbox" {
					n.do(request("DEL", "c2", "/run/netns/b"))
				}
				n.api.change(portA, func(p *v1.KuryrPort) { p.Spec.PodRef = nil })
				n.parks(portA)
				n.api.remove(portA)
				n.parks()
			})
		}
	}
}

// A port that another pod had is plugged after it has this pod's security groups.
func TestAddWaitsForTheSecurityGroups(t *testing.T) {
	with := func(generation, told int64, wanted, applied []string) *v1.KuryrPort {
		p := kuryrPort(portA, uidA)
		p.Generation, p.Spec.SecurityGroupIDs, p.Status.AppliedSecurityGroupIDs = generation, wanted, applied
		p.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: told}}
		return p
	}
	failed := func(p *v1.KuryrPort) *v1.KuryrPort {
		p.Status.Conditions[0].Status, p.Status.Conditions[0].Reason = metav1.ConditionFalse, "Unavailable"
		return p
	}
	for name, test := range map[string]struct {
		port  *v1.KuryrPort
		waits bool
	}{
		"as it was made":     {with(1, 0, []string{"a"}, nil), false},
		"in another order":   {with(3, 2, []string{"a", "b"}, []string{"b", "a"}), false},
		"not told yet":       {with(2, 0, []string{"a"}, nil), true},
		"those of before":    {with(2, 1, []string{"a", "b"}, []string{"a"}), true},
		"more than it needs": {with(2, 1, []string{"a"}, []string{"a", "b"}), true},
		"of an older spec":   {with(4, 2, []string{"a"}, []string{"a"}), true},
		"none, and unknown":  {failed(with(2, 2, nil, nil)), true},
		"others, and back":   {failed(with(4, 3, []string{"a"}, []string{"a"})), true},
		"no name, as made":   {failed(with(1, 1, []string{"a"}, nil)), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			if test.waits {
				n.timeout = 100 * time.Millisecond
			}
			n.start()
			n.api.put(test.port)
			if !test.waits {
				n.do(request("ADD", "c1", "/run/netns/a"))
				return
			}
			_, err := n.call(context.Background(), request("ADD", "c1", "/run/netns/a"))
			if codeOf(err) != cni.CodeNotWired || !strings.Contains(fmt.Sprint(err), "security groups") {
				t.Errorf("ADD = %v (code %d), want code %d that names the security groups", err, codeOf(err), cni.CodeNotWired)
			}
			if n.count("plug") != 0 {
				t.Error("the port was plugged all the same")
			}
			n.end()
			n.timeout = 20 * time.Second
			n.start()
			done := make(chan error, 1)
			go func() { _, err := n.call(context.Background(), request("ADD", "c1", "/run/netns/a")); done <- err }()
			n.api.change(portA, func(p *v1.KuryrPort) {
				p.Status.AppliedSecurityGroupIDs = p.Spec.SecurityGroupIDs
				p.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: p.Generation}}
			})
			if err := <-done; err != nil {
				t.Errorf("ADD after they were applied = %v", err)
			}
		})
	}
}

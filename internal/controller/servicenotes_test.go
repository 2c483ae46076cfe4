// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/service"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestNotesOnce: a problem of a Service is reported in a condition and in one Event for each cause.
// A restart does not repeat it. The condition is removed after the correction.
func TestNotesOnce(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	svc := b.service("web", func(s *corev1.Service) {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
		s.Annotations = map[string]string{"loadbalancer.openstack.org/flavour-id": "x", "loadbalancer.openstack.org/subnetid": "x"}
	})
	b.slice("web", "web-1", "10.1.0.5", "198.51.100.5")
	b.members("web", "10.1.0.5")
	want := []string{"Warning EndpointsLeftOut 1", "Warning UnknownAnnotation 1", "Warning UnknownAnnotation 1", "Warning Unsupported 1"}
	b.eventually("there are four Events", func() bool { return slices.Equal(b.eventsOn(svc), want) })
	c := b.planned(svc)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "SeveralProblems" {
		t.Fatalf("condition %+v", c)
	}
	b.mentions("the condition", c.Message, "spec.internalTrafficPolicy: ", "there is no such annotation: correct or remove it", "198.51.100.5 is in no subnet that Kuryr knows")
	b.stop()
	calls := b.book.count()
	b.launch()
	b.eventually("Services are planned after a restart", func() bool { return b.book.count() > calls })
	b.quiet()
	if got := b.eventsOn(svc); !slices.Equal(got, want) {
		t.Errorf("Events after a restart: %v", got)
	}
	b.patch(svc, map[string]any{"spec": map[string]any{"internalTrafficPolicy": "Cluster"}})
	b.eventually("the condition says less", func() bool {
		now := b.planned(svc).Message
		return now != c.Message && !strings.Contains(now, "internalTrafficPolicy")
	})
	// Reported notes are not recognised by their words: somebody, or another version of Kuryr, may
	// have written others.
	c = b.planned(svc)
	b.patchStatus(svc, map[string]any{"conditions": []any{map[string]any{
		"type": c.Type, "status": c.Status, "reason": c.Reason, "message": "in other words", "lastTransitionTime": c.LastTransitionTime,
	}}})
	b.eventually("it says what it said", func() bool { return b.planned(svc).Message == c.Message })
	b.quiet()
	if got := b.eventsOn(svc); !slices.Equal(got, want) {
		t.Errorf("Events after somebody has written into the condition: %v", got)
	}
	b.patch(svc, map[string]any{"metadata": map[string]any{"annotations": nil}})
	b.set(func(s *settings.Settings) {
		s.Services.NodeSubnetIDs = []string{"5f1c5aac-0000-4000-8000-0000000000a3"}
	})
	b.eventually("it says that a subnet is not there", func() bool {
		c := b.planned(svc)
		return c.Reason == "EndpointsLeftOut" && hasWords(c.Message, "the cloud shows no subnet 5f1c5aac-0000-4000-8000-0000000000a3")
	})
	b.cloud.AddSubnet(memory.Subnet{ID: "5f1c5aac-0000-4000-8000-0000000000a3", NetworkID: network, Prefix: netip.MustParsePrefix("198.51.100.0/24")})
	b.eventually("all is well", func() bool { return b.planned(svc) == nil })
	if got := b.now(svc).Annotations; len(got) > 0 {
		t.Errorf("annotations %v, want none when nothing is to be said", got)
	}
	b.members("web", "10.1.0.5", "198.51.100.5")
}

// TestNotAllowed: a value that the configuration does not let Services name is reported with the
// key to change. It takes effect after that change.
func TestNotAllowed(t *testing.T) {
	b := newServiceBed(t)
	b.set(func(s *settings.Settings) { s.Services.Allowed = config.Allowed{} })
	b.launch()
	svc := b.service("web", by("amphora"))
	b.slice("web", "web-1", "10.1.0.5")
	if klb := b.members("web", "10.1.0.5"); klb.Spec.Provider != "" {
		t.Errorf("provider %q, want none", klb.Spec.Provider)
	}
	words := []string{`"amphora"`, "services.allowed.providers"}
	b.mentions("Event", b.eventOn("web", service.ReasonNotAllowed), words...)
	b.eventually("it is told", func() bool { return b.planned(svc) != nil })
	if c := b.planned(svc); c.Reason != service.ReasonNotAllowed || c.Status != metav1.ConditionFalse {
		t.Errorf("the condition is %+v", c)
	}
	b.mentions("the condition", b.planned(svc).Message, words...)
	b.set(func(s *settings.Settings) { s.Services.Allowed.Providers = []string{"amphora"} })
	b.eventually("it counts", func() bool { return b.balancerOf("web").Spec.Provider == "amphora" && b.planned(svc) == nil })
}

// TestNotesChange: a different problem has its own Event, though field and reason are the same. Two
// problems in one field have one Event with both texts.
func TestNotesChange(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	flavor := func(value string) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{"loadbalancer.openstack.org/flavor-id": value}}}
	}
	svc := b.service("web")
	b.patch(svc, flavor("large"))
	names := newSlice("web", "names", "one.example.com")
	names.AddressType = discoveryv1.AddressTypeFQDN
	b.create(names)
	b.slice("web", "web-1", "10.1.0.5", "198.51.100.5")
	said := func(words ...string) func() bool {
		return func() bool {
			return slices.ContainsFunc(b.notesOn(svc), func(note string) bool {
				return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(note, w) })
			})
		}
	}
	b.eventually("there is an Event of the first value", said("large"))
	b.eventually("there is one of both endpoints", said("FQDN", "198.51.100.5"))
	b.patch(svc, flavor("small"))
	b.eventually("there is an Event of the second value", said("small"))
	for _, e := range b.eventList(svc) {
		if strings.HasPrefix(e.Note, "endpoints: ") == (e.Regarding.FieldPath != "") {
			t.Errorf("Event %q is about field %q", e.Note, e.Regarding.FieldPath)
		}
	}
}

// TestMoreNotesThanFit: more notes than fit into a condition are also reported once.
func TestMoreNotesThanFit(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	svc := b.service("web", func(s *corev1.Service) {
		s.Annotations = map[string]string{}
		for i := range 400 {
			s.Annotations[fmt.Sprintf("loadbalancer.openstack.org/something-%d-%s", i, strings.Repeat("x", 40))] = "y"
		}
	})
	s := b.slice("web", "web-1", "10.1.0.5")
	b.members("web", "10.1.0.5")
	b.eventually("there is a condition", func() bool { return b.planned(svc) != nil })
	b.eventually("there are 16 Events", func() bool { return len(b.eventsOn(svc)) == 16 })
	b.quiet()
	b.patch(s, map[string]any{"endpoints": []any{}})
	b.members("web")
	b.quiet()
	if got := b.eventsOn(svc); len(got) != 16 {
		t.Errorf("%d Events, want 16", len(got))
	}
}

// TestExternalIPTaken: two Services claim one address and port. The younger one reports it as long
// as that is so.
func TestExternalIPTaken(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	claim := func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.7"} }
	first := b.service("b", claim) // as old as the other, and first by name
	second := b.service("c", claim)
	b.service("free", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.8"} })
	for _, name := range []string{"b", "c", "free"} {
		b.slice(name, name, "10.1.0.5")
		b.members(name, "10.1.0.5")
	}
	taken := func(svc *corev1.Service) bool {
		c := b.planned(svc)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == "ExternalIPTaken"
	}
	b.eventually("the second is told", func() bool { return taken(second) })
	b.mentions("the condition", b.planned(second).Message, "203.0.113.7 at TCP 80 belongs to Service default/b")
	b.eventually("there is an Event", func() bool { return slices.Contains(b.eventsOn(second), "Warning ExternalIPTaken 1") })
	if taken(first) {
		t.Errorf("the first is told %+v", b.planned(first))
	}
	leaveAlone := func(value any) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{v1.LeaveAloneLabel: value}}}
	}
	b.patch(first, leaveAlone(""))
	b.eventually("the second has it", func() bool { return !taken(second) })
	b.patch(first, leaveAlone(nil))
	b.eventually("it is the first one's again", func() bool { return taken(second) })
	b.patch(first, map[string]any{"spec": map[string]any{"externalIPs": []string{"203.0.113.8"}}})
	b.eventually("the second has it again", func() bool { return !taken(second) })
}

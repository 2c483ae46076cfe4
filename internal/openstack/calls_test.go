// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/trunks"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

var (
	owner   = sdn.Owner{Kind: "kuryrportpool", Name: "n1-0123456789"}
	request = sdn.PortRequest{SubnetIDs: []string{subnet4}, SecurityGroupIDs: []string{groupA}, Host: "n1"}
)

func mustCreate(t *testing.T, b *openstack.Backend, r sdn.PortRequest, n int) []sdn.Port {
	t.Helper()
	ports, err := b.CreatePorts(t.Context(), owner, r, n)
	if err != nil || len(ports) != n {
		t.Fatalf("CreatePorts of %d = %d, %v", n, len(ports), err)
	}
	return ports
}

// The whole life of ports costs one POST a batch and one DELETE a port; all else
// is asked once.
func TestCallsOfAPortsLife(t *testing.T) {
	f := newFake(t)
	registry := prometheus.NewRegistry()
	b := f.backend("one", func(c *openstack.Config) { c.Metrics = registry })
	var ports []sdn.Port
	for range 10 {
		ports = append(ports, mustCreate(t, b, request, 1)...)
	}
	ports = append(ports, mustCreate(t, b, request, 20)...)
	for _, p := range ports {
		if err := b.DeletePort(t.Context(), p.ID); err != nil {
			t.Fatalf("DeletePort: %v", err)
		}
	}
	want := map[string]int{
		"POST v3/auth/tokens":  1,
		"GET v2.0/extensions":  1,
		"GET v2.0/subnets/ID":  1,
		"GET v2.0/networks/ID": 1,
		"POST v2.0/ports":      11,
		"DELETE v2.0/ports/ID": 30,
	}
	if diff := cmp.Diff(want, f.counts()); diff != "" {
		t.Errorf("requests: (-want +got)\n%s", diff)
	}
	metrics := `
# HELP kuryr_cloud_requests_total HTTP requests to the cloud, by status code; none if there was no answer.
# TYPE kuryr_cloud_requests_total counter
kuryr_cloud_requests_total{code="200",resource="extensions",service="network",verb="GET"} 1
kuryr_cloud_requests_total{code="200",resource="networks",service="network",verb="GET"} 1
kuryr_cloud_requests_total{code="200",resource="subnets",service="network",verb="GET"} 1
kuryr_cloud_requests_total{code="201",resource="ports",service="network",verb="POST"} 11
kuryr_cloud_requests_total{code="201",resource="tokens",service="identity",verb="POST"} 1
kuryr_cloud_requests_total{code="204",resource="ports",service="network",verb="DELETE"} 30
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(metrics), "kuryr_cloud_requests_total"); err != nil {
		t.Error(err)
	}
}

// After a restart the first change of a port looks at its mark; a list does so
// for all at once.
func TestCallsAfterARestart(t *testing.T) {
	f := newFake(t)
	ports := mustCreate(t, f.backend("one"), request, 3)
	b := f.backend("one")
	f.requests = nil
	name := "a/b"
	for range 2 {
		if err := b.UpdatePort(t.Context(), ports[0].ID, sdn.PortUpdate{Name: &name}); err != nil {
			t.Fatalf("UpdatePort: %v", err)
		}
	}
	for range 2 {
		if _, err := b.ListPorts(t.Context()); err != nil {
			t.Fatalf("ListPorts: %v", err)
		}
	}
	for _, p := range ports {
		if err := b.DeletePort(t.Context(), p.ID); err != nil {
			t.Fatalf("DeletePort: %v", err)
		}
	}
	want := map[string]int{
		"POST v3/auth/tokens": 1, "GET v2.0/ports/ID": 1, "PUT v2.0/ports/ID": 2, "DELETE v2.0/ports/ID": 3,
		"GET v2.0/ports": 3, // the first time by name too: a trunk may have been in use before
	}
	if diff := cmp.Diff(want, f.counts()); diff != "" {
		t.Errorf("requests: (-want +got)\n%s", diff)
	}
}

func TestCallsOfASubportsLife(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	r := request
	r.Host, r.ParentPortID = "", parent
	name := "a pod"
	for range 2 {
		for i, p := range mustCreate(t, b, r, 3) {
			if i == 0 { // off its trunk, only its name would show that it is Kuryr's
				if err := b.UpdatePort(t.Context(), p.ID, sdn.PortUpdate{Name: &name}); err != nil {
					t.Fatalf("UpdatePort: %v", err)
				}
			}
			if err := b.DeletePort(t.Context(), p.ID); err != nil {
				t.Fatalf("DeletePort: %v", err)
			}
		}
	}
	want := map[string]int{
		"POST v3/auth/tokens": 1, "GET v2.0/extensions": 1, "GET v2.0/subnets/ID": 1, "GET v2.0/networks/ID": 1,
		"GET v2.0/ports/ID": 3, // the parent: whether it is one, once; its trunk's VLANs for each batch
		"POST v2.0/ports":   2, "PUT v2.0/trunks/ID/add_subports": 2,
		"PUT v2.0/trunks/ID/remove_subports": 6, "DELETE v2.0/ports/ID": 6,
		"PUT v2.0/ports/ID": 4, // each name is given, and taken before the port leaves its trunk
	}
	if diff := cmp.Diff(want, f.counts()); diff != "" {
		t.Errorf("requests: (-want +got)\n%s", diff)
	}
}

// Subports that are deleted at the same time leave their trunk together, also those of a
// process that has just started and knows no trunks; one that is off it already keeps
// none of the others there.
func TestSubportsLeaveTogether(t *testing.T) {
	const n = 12
	for _, restarted := range []bool{false, true} {
		s := newOnSim(t)
		made := s.create(t, s.target.Backend, s.request(s.parent, "vlan"), n+1)
		off := trunks.RemoveSubportsOpts{Subports: []trunks.RemoveSubport{{PortID: made[n/2].ID}}}
		b := s.target.Backend
		want := map[string]int{"PUT trunks/{id}/remove_subports": 1, "DELETE ports/{id}": n}
		if restarted {
			b = s.target.Fresh(t)
			_, err := b.ListPorts(t.Context())
			must(t, err)
			want["GET trunks"] = 1
		} else {
			must(t, trunks.RemoveSubports(t.Context(), s.client, s.trunk, off).Err)
			want["PUT trunks/{id}/remove_subports"] += n // each for itself
		}
		s.asked()
		var all sync.WaitGroup
		for _, p := range made[:n] {
			all.Go(func() {
				if err := b.DeletePort(t.Context(), p.ID); err != nil {
					t.Errorf("DeletePort beside others: %v", err)
				}
			})
		}
		all.Wait()
		got := s.asked()
		for _, what := range []string{"GET trunks", "PUT trunks/{id}/remove_subports"} {
			if extra := got[what] - want[what]; extra > 0 && extra <= 2 {
				got[what] = want[what] // a busy machine lets some come late
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("restarted %v: requests for %d subports (-want +got):\n%s", restarted, n, diff)
		}
		if left := s.Subports(t, s.parent); len(left) != 1 || left[made[n].ID] == 0 {
			t.Errorf("restarted %v: on the trunk are %v, want the one that was not deleted", restarted, left)
		}
	}
}

// Room for 5 of 8 ports: 8 no, 4 yes, 4 no, 2 no, 1 yes, 1 no.
func TestCallsAtTheQuota(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	f.limit(5)
	ports, err := b.CreatePorts(t.Context(), owner, request, 8)
	if err == nil || len(ports) != 5 {
		t.Errorf("CreatePorts of 8 with room for 5 = %d, %v", len(ports), err)
	}
	if got := f.counts()["POST v2.0/ports"]; got != 6 {
		t.Errorf("%d POSTs, want 6", got)
	}
}

func TestCallsOfALargeBatch(t *testing.T) {
	f := newFake(t)
	mustCreate(t, f.backend("one"), request, 120)
	if got := f.counts()["POST v2.0/ports"]; got != 3 {
		t.Errorf("%d POSTs for 120 ports, want 3 of at most 50", got)
	}
}

// Thirty pods that go do not delay the one that comes, whose POST and whatever
// that needs find a place.
func TestDeletionsDelayNoCreation(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	ports := mustCreate(t, b, request, 32)
	over, deleting := make(chan struct{}), make(chan struct{}, len(ports))
	f.before = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		if r.Method == http.MethodDelete {
			f.mu.Unlock() // others are answered meanwhile
			defer f.mu.Lock()
			deleting <- struct{}{}
			<-over
		}
		return false
	}
	var deletions sync.WaitGroup
	for _, p := range ports {
		deletions.Go(func() {
			if err := b.DeletePort(t.Context(), p.ID); err != nil {
				t.Errorf("DeletePort: %v", err)
			}
		})
	}
	for range 4 { // half of the places
		<-deleting
	}
	other := request
	other.SubnetIDs = []string{subnet6} // to be read, as its network is
	mustCreate(t, b, other, 1)
	mustCreate(t, b, sdn.PortRequest{SubnetIDs: []string{subnet4}, ParentPortID: parent}, 1)
	if got := f.counts()["DELETE v2.0/ports/ID"]; got != 4 {
		t.Errorf("%d DELETEs are on their way, want 4", got)
	}
	close(over)
	deletions.Wait()
}

func TestListAsksForLittle(t *testing.T) {
	f := newFake(t)
	if _, err := f.backend("one").ListPorts(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := f.queries[len(f.queries)-2]
	for _, want := range []string{"device_owner=compute%3Akuryr", "device_owner=trunk%3Asubport", "fields=id", "fields=description", "limit=500"} {
		if !strings.Contains(got, want) {
			t.Errorf("query %s has no %s", got, want)
		}
	}
}

func TestMarksInTheCreatingCall(t *testing.T) {
	const mark = "kuryr.cluster=one kuryr.owner=kuryrportpool/n1-0123456789"
	for _, tags := range []bool{false, true} {
		f := newFake(t)
		if tags {
			f.aliases = append(f.aliases, "tag-ports-during-bulk-creation")
		}
		mustCreate(t, f.backend("one"), request, 1)
		port := f.bodies[len(f.bodies)-1]["ports"].([]any)[0].(object)
		if port["description"] != mark {
			t.Errorf("description %q, want %q", port["description"], mark)
		}
		want := []any{"kuryr.cluster=one", "kuryr.owner=kuryrportpool/n1-0123456789"}
		if got := port["tags"]; tags && !cmp.Equal(got, any(want)) || !tags && got != nil {
			t.Errorf("with the extension %t: tags %v", tags, got)
		}
	}
}

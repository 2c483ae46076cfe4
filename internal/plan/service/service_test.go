// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"cmp"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/plan/service"
)

var update = flag.Bool("update", false, "rewrite the plans in testdata")

// settings is the configuration of all cases that set no other.
func settings() service.Settings {
	subnet := func(id, prefix string) service.Subnet {
		return service.Subnet{ID: id, Prefix: netip.MustParsePrefix(prefix)}
	}
	return service.Settings{
		Services:          []service.Subnet{subnet("services", "10.96.0.0/16"), subnet("services6", "fd00:96::/112")},
		Members:           []service.Subnet{subnet("pods", "10.1.0.0/16"), subnet("pods6", "fd00:1::/64"), subnet("nodes", "192.168.5.0/24")},
		ExternalNetworkID: "public",
		Allowed: service.Allowed{
			MemberSubnetIDs:    []string{"7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e11", "7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e12", "7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e13"},
			ExternalNetworkIDs: []string{"7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e11"},
			ExternalSubnetIDs:  []string{"7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e11", "7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e12"},
			Providers:          []string{"amphora"},
			FlavorIDs:          []string{"7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e11", "7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e12"},
		},
	}
}

// testCase is a case of testdata. By default a Service is default/web, of type ClusterIP, with
// cluster IP 10.96.0.7 and port 80 of TCP. By default a slice is of IPv4 and has port 8080 under
// the name of the Service's first port.
type testCase struct {
	Service  corev1.Service
	Slices   []discoveryv1.EndpointSlice
	Known    map[string]string
	Previous *v1.KuryrLoadBalancerSpec
	Made     bool
	Rivals   []corev1.Service
	Now      metav1.Time
	// Namespace has its own subnet "own", 10.7.0.0/16, if it has a project.
	Namespace struct {
		ProjectID string
		Foreign   map[string]string
		Faults    []network.Fault // it is blocked
	}
	Settings *struct {
		ProjectID                                               string
		Projects                                                []service.Project
		PodRanges                                               []string
		Provider, FlavorID, ExternalNetworkID, ExternalSubnetID string
		Nothing, NothingAllowed, SourceRangesAtMembers          bool
		Lost                                                    []string
	}
}

func (c *testCase) input(t *testing.T) service.Input {
	t.Helper()
	c.defaults()
	in := service.Input{Service: &c.Service, Previous: c.Previous, Made: c.Made, Namespace: c.namespace(), Settings: settings(), Now: c.Now.Time, Known: map[netip.Addr]string{}}
	for i := range c.Slices {
		in.Slices = append(in.Slices, &c.Slices[i])
	}
	for i := range c.Rivals {
		in.Rivals = append(in.Rivals, &c.Rivals[i])
	}
	for ip, subnet := range c.Known {
		in.Known[netip.MustParseAddr(ip)] = subnet
	}
	if s := c.Settings; s != nil {
		in.Settings.ProjectID, in.Settings.Projects = s.ProjectID, s.Projects
		for _, r := range s.PodRanges {
			in.Settings.PodRanges = append(in.Settings.PodRanges, netip.MustParsePrefix(r))
		}
		in.Settings.Provider, in.Settings.FlavorID = s.Provider, s.FlavorID
		in.Settings.ExternalNetworkID, in.Settings.ExternalSubnetID = s.ExternalNetworkID, s.ExternalSubnetID
		in.Settings.Lost, in.Settings.SourceRangesAtMembers = s.Lost, s.SourceRangesAtMembers
		if s.NothingAllowed {
			in.Settings.Allowed = service.Allowed{}
		}
		if s.Nothing {
			in.Settings.Services = nil
		}
	}
	return in
}

func (c *testCase) namespace() service.Namespace {
	n := service.Namespace{ProjectID: c.Namespace.ProjectID}
	if n.ProjectID != "" {
		n.Subnets = []service.Subnet{{ID: "own", Prefix: netip.MustParsePrefix("10.7.0.0/16")}}
	}
	n.Faults, n.Blocked = c.Namespace.Faults, len(c.Namespace.Faults) > 0
	for ip, subnet := range c.Namespace.Foreign {
		if n.Foreign == nil {
			n.Foreign = map[netip.Addr]string{}
		}
		n.Foreign[netip.MustParseAddr(ip)] = subnet
	}
	return n
}

func (c *testCase) defaults() {
	svc := &c.Service
	svc.Namespace, svc.Name = cmp.Or(svc.Namespace, "default"), cmp.Or(svc.Name, "web")
	svc.Spec.Type = cmp.Or(svc.Spec.Type, corev1.ServiceTypeClusterIP)
	if len(svc.Spec.ClusterIPs) == 0 {
		svc.Spec.ClusterIPs = []string{cmp.Or(svc.Spec.ClusterIP, "10.96.0.7")}
	}
	svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	if svc.Spec.Ports == nil {
		svc.Spec.Ports = []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}
	}
	for i := range c.Slices {
		s := &c.Slices[i]
		s.AddressType = cmp.Or(s.AddressType, discoveryv1.AddressTypeIPv4)
		if s.Ports == nil {
			s.Ports = []discoveryv1.EndpointPort{{Name: &svc.Spec.Ports[0].Name, Protocol: &svc.Spec.Ports[0].Protocol, Port: new(int32(8080))}}
		}
	}
}

// TestPlan reads cases from testdata. Each case is a comment with the expectation, then pairs of a
// Service with its endpoints and the plan for it.
func TestPlan(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("reading testdata: %v, %d files", err, len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i+1 < len(archive.Files); i += 2 {
				given, want := archive.Files[i], &archive.Files[i+1]
				var c testCase
				if err := yaml.UnmarshalStrict(given.Data, &c); err != nil {
					t.Fatalf("%s: %v", given.Name, err)
				}
				got := describe(service.Plan(c.input(t)))
				if *update {
					want.Data = []byte(got)
				}
				if diff := gocmp.Diff(string(want.Data), got); diff != "" {
					t.Errorf("%s: plan (-want +got):\n%s", given.Name, diff)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// describe writes a plan, one item a line.
func describe(o service.Outcome) string {
	var b strings.Builder
	fmt.Fprintln(&b, o.Verdict)
	if o.Verdict == service.Realise {
		describeSpec(&b, &o.Spec)
	}
	for _, n := range o.Notes {
		mark := "WARN"
		if n.Info {
			mark = "note"
		}
		fmt.Fprintln(&b, mark, n)
	}
	if o.Again > 0 {
		fmt.Fprintln(&b, "again in", o.Again)
	}
	return b.String()
}

func describeSpec(b *strings.Builder, s *v1.KuryrLoadBalancerSpec) {
	for _, f := range [][2]string{{"project", s.ProjectID}, {"provider", s.Provider}, {"flavor", s.FlavorID}, {"zone", s.AvailabilityZone}} {
		if f[1] != "" {
			fmt.Fprintln(b, f[0], f[1])
		}
	}
	for _, v := range s.VIPs {
		fmt.Fprintln(b, "vip", v.IP, "in", v.SubnetID)
	}
	for _, l := range s.Listeners {
		describeListener(b, l)
	}
	if len(s.SourceRanges) > 0 {
		fmt.Fprintln(b, "from", strings.Join(s.SourceRanges, " "))
	}
	if s.SourceRangesAtMembers {
		fmt.Fprintln(b, "which members' security groups keep if nobody else does")
	}
	if s.KeepClientAddress {
		fmt.Fprintln(b, "keep the client's address")
	}
	if ip := s.PublicIP; ip != nil {
		fmt.Fprintf(b, "floating IP of %s subnet=%q address=%q keep=%v\n", ip.NetworkID, ip.SubnetID, ip.Address, ip.Keep)
	}
}

func describeListener(b *strings.Builder, l v1.ListenerSpec) {
	fmt.Fprintf(b, "%s %d %s", l.Protocol, l.Port, cmp.Or(l.Name, "-"))
	for _, f := range []struct {
		name  string
		value *int64
	}{
		{"client", l.TimeoutClientData}, {"member", l.TimeoutMemberData}, {"connect", l.TimeoutMemberConnect}, {"inspect", l.TimeoutTCPInspect},
		{"limit", wide(l.ConnectionLimit)}, {"affinity", wide(l.AffinitySeconds)},
	} {
		if f.value != nil {
			fmt.Fprintf(b, " %s=%d", f.name, *f.value)
		}
	}
	fmt.Fprint(b, prefixed(" proxy=", l.ProxyProtocol), prefixed(" by=", l.Algorithm))
	if m := l.Monitor; m != nil {
		fmt.Fprintf(b, " monitor=%s/%d/%d/%d/%d", m.Type, m.Delay, m.Timeout, m.MaxRetries, m.MaxRetriesDown)
	}
	fmt.Fprintln(b)
	for _, m := range l.Members {
		fmt.Fprintf(b, "  %s:%d %s in %s\n", m.IP, m.Port, m.Name, m.SubnetID)
	}
}

func wide(v *int32) *int64 {
	if v == nil {
		return nil
	}
	return new(int64(*v))
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

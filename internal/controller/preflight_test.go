// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	checks "github.com/kuryr-go/kuryr/internal/plan/preflight"
)

// finder makes the checks of a controller: it returns what the test says.
type finder struct {
	mu     sync.Mutex
	report checks.Report
	calls  int
	gate   chan struct{} // not nil: calls wait until it is closed
}

func (f *finder) Check(ctx context.Context) checks.Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gate != nil {
		select {
		case <-f.gate:
		case <-ctx.Done():
		}
	}
	f.calls++
	return f.report
}

func (f *finder) set(findings ...checks.Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.Findings = findings
}

func (f *finder) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// checkAgain changes the settings, which requests new checks, and waits for these.
func (b *bed) checkAgain(f *finder) {
	b.t.Helper()
	before := f.count()
	b.set(func(*settings.Settings) {})
	b.eventually("the checks were made again", func() bool { return f.count() > before })
}

// cluster returns the KuryrCluster; nil if there is none.
func (b *bed) cluster() *v1.KuryrCluster {
	b.t.Helper()
	var c v1.KuryrCluster
	err := b.client.Get(b.t.Context(), client.ObjectKey{Name: v1.ClusterName}, &c)
	if meta.IsNoMatchError(err) || client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return &c
}

// clusterSays waits until a condition of the KuryrCluster has this status and reason.
func (b *bed) clusterSays(kind string, is metav1.ConditionStatus, reason string) *v1.KuryrCluster {
	b.t.Helper()
	var c *v1.KuryrCluster
	b.eventually("KuryrCluster says "+kind+" "+reason, func() bool {
		if c = b.cluster(); c == nil {
			return false
		}
		now := meta.FindStatusCondition(c.Status.Conditions, kind)
		return now != nil && now.Status == is && now.Reason == reason
	})
	return c
}

var (
	noRoom    = checks.Finding{Name: "LittleRoom", Severity: checks.Warning, Object: "subnet pods", Message: "It is nearly full.", Remedy: []string{"openstack subnet show pods"}}
	noPublic  = checks.Finding{Name: checks.PublicNetworkMissing, Severity: checks.Error, Object: "network public", Message: "Neutron does not show it.", Remedy: []string{"openstack network list --external"}}
	ofATenant = checks.Finding{Name: "SecurityGroupMissing", Severity: checks.Error, Part: true, Object: "security group of a project", Message: "Neutron does not show it.", Remedy: []string{"openstack security group list"}}
	unread    = checks.Finding{Name: "AgentsDown", Severity: checks.Unknown, Object: "agents", Message: "It is unknown."}
	cloudAway = checks.Finding{Name: checks.CloudUnavailable, Severity: checks.Unknown, Object: "Neutron", Message: "It did not answer."}
)

// TestPreflightIsReported: the checks run beside serving, also while they hang. Their findings are
// on the KuryrCluster, errors first. While the cloud does not answer, they stay there.
func TestPreflightIsReported(t *testing.T) {
	alone(t) // metrics
	b := idleBed(t)
	f := &finder{gate: make(chan struct{})}
	f.report.Findings = []checks.Finding{unread, noRoom, noPublic}
	b.preflight = f
	b.start()
	b.bound(b.pod("web-0"))
	if c := b.cluster(); c != nil {
		t.Errorf("KuryrCluster before the checks: %v", c)
	}
	close(f.gate)
	c := b.clusterSays(v1.ConditionReady, metav1.ConditionFalse, v1.ReasonErrors)
	want := []v1.KuryrClusterFinding{
		{Name: noPublic.Name, Severity: "Error", Object: noPublic.Object, Message: noPublic.Message, Remedy: noPublic.Remedy},
		{Name: noRoom.Name, Severity: "Warning", Object: noRoom.Object, Message: noRoom.Message, Remedy: noRoom.Remedy},
		{Name: unread.Name, Severity: "Unknown", Object: unread.Object, Message: unread.Message},
	}
	if diff := cmp.Diff(want, c.Status.Findings); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if s := c.Status; s.Errors != 1 || s.Warnings != 1 || s.Unknown != 1 || s.LastChecked == nil {
		t.Errorf("status %+v", s)
	}
	b.mentions("Ready", meta.FindStatusCondition(c.Status.Conditions, v1.ConditionReady).Message, "Errors: 1, warnings: 1, not checked: 1", noPublic.Name, noRoom.Name)
	b.mentions("the Event", b.eventOn(v1.ClusterName, noPublic.Name), noPublic.Message)
	b.eventOn(v1.ClusterName, noRoom.Name)
	now := measured(t)
	for severity, n := range map[string]float64{"Error": 1, "Warning": 1, "Unknown": 1} {
		if got := now["kuryr_preflight_findings "+severity]; got != n {
			t.Errorf("kuryr_preflight_findings of %s = %v, want %v", severity, got, n)
		}
	}
	// The same result is not written again, and gets no Event.
	b.checkAgain(f)
	b.checkAgain(f)
	if again := b.cluster(); again.ResourceVersion != c.ResourceVersion {
		t.Errorf("written again: %s, before %s", again.ResourceVersion, c.ResourceVersion)
	}
	f.set(cloudAway)
	b.checkAgain(f)
	c = b.clusterSays(v1.ConditionChecked, metav1.ConditionFalse, v1.ReasonUnavailable)
	if diff := cmp.Diff(want, c.Status.Findings); diff != "" || c.Status.Errors != 1 {
		t.Errorf("findings while the cloud is away (-want +got):\n%s\n%+v", diff, c.Status)
	}
	f.set(noRoom)
	b.checkAgain(f)
	b.clusterSays(v1.ConditionChecked, metav1.ConditionTrue, v1.ReasonChecked)
	b.clusterSays(v1.ConditionReady, metav1.ConditionTrue, v1.ReasonWarnings)
	f.set()
	b.checkAgain(f)
	c = b.clusterSays(v1.ConditionReady, metav1.ConditionTrue, v1.ReasonReady)
	if n := len(c.Status.Findings); n > 0 || c.Status.Warnings > 0 {
		t.Errorf("status without findings: %+v", c.Status)
	}
	for what, n := range b.told() {
		if strings.HasPrefix(what, "KuryrCluster/") && n != 1 {
			t.Errorf("%d Events: %s", n, what)
		}
	}
}

// TestRestartRepeatsNoFinding: after a restart a finding gets no second Event.
func TestRestartRepeatsNoFinding(t *testing.T) {
	b := idleBed(t)
	f := &finder{}
	f.set(noRoom)
	b.preflight = f
	b.start()
	b.eventOn(v1.ClusterName, noRoom.Name)
	b.stop()
	c, before := b.cluster(), f.count()
	b.start()
	b.eventually("the checks are made at the start", func() bool { return f.count() > before })
	b.checkAgain(f)
	if now := b.cluster(); now.ResourceVersion != c.ResourceVersion {
		t.Error("the restart wrote the KuryrCluster")
	}
	if n := b.told()["KuryrCluster/default "+noRoom.Name]; n != 1 {
		t.Errorf("%d Events, want 1", n)
	}
}

// TestPreflightWithoutItsKind: without the kind and the permission, pods and Services are served,
// and the checks are made. The kind is found later.
func TestPreflightWithoutItsKind(t *testing.T) {
	o := newOlder(t)
	o.install() // KuryrLoadBalancer only
	o.grant(everything, "kuryrports", "kuryrportpools", "kuryrloadbalancers", "kuryrports/status", "kuryrportpools/status", "kuryrloadbalancers/status")
	f := &finder{}
	f.set(noPublic)
	o.preflight, o.whole = f, true
	o.launch()
	o.serves("web-0")
	o.eventually("Services are served", func() bool { return o.balancerOf("kubernetes") != nil })
	o.checkAgain(f)
	crd := strings.Replace(definition, "kuryrloadbalancers", "kuryrclusters", 1)
	if _, err := envtest.InstallCRDs(o.env.Config, envtest.CRDInstallOptions{Paths: []string{crd}}); err != nil {
		t.Fatal(err)
	}
	o.checkAgain(f) // the kind without the permission
	if c := o.cluster(); c != nil {
		t.Errorf("KuryrCluster without permission: %v", c)
	}
	o.grant(everything)
	o.eventually("the result is reported", func() bool {
		o.checkAgain(f)
		c := o.cluster()
		return c != nil && c.Status.Errors == 1
	})
}

// TestServicesDoNotWait: with preflight.firstStartWaits false, what preflight finds stops nothing, also
// not the first Services of a cluster whose public network is missing.
func TestServicesDoNotWait(t *testing.T) {
	b := newServiceBed(t)
	f := &finder{}
	f.set(noPublic)
	b.whole, b.preflight = true, f
	b.launch()
	b.clusterSays(v1.ConditionReady, metav1.ConditionFalse, v1.ReasonErrors)
	b.eventually("Services are served although the network is missing", func() bool { return b.balancerOf("kubernetes") != nil })
}

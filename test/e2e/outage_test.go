// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/test/cluster"
)

const (
	restIn  = 5 * time.Minute  // until all is as it is wanted, once the cloud is back
	dnsIn   = 60 * time.Second // until cluster DNS answers each question, likewise
	insides = 8                // how often at most Octavia is killed after the time is over
)

// Pods, namespaces and Services come and go, and so do the pods of cluster DNS, while the
// parts of the cloud and of Kubernetes are stopped and killed, one after the other, for 2
// to 15 s each; Octavia on purpose in the middle of changes. Then all are there again.
//
// Cluster DNS answers within a minute. Within five, nobody touching anything, there is
// nothing too much, missing or stuck, in Kubernetes, Neutron, Octavia and OVN, and each
// Service answers. Only what Octavia leaves PENDING for ever is given ERROR in its
// database, as docs/services.md tells operators.
//
// KURYR_OUTAGE says for how long; otherwise three minutes. KURYR_OUTAGE_SEED repeats the
// choices of a run, not its races.
func TestCloudOutage(t *testing.T) {
	f := onBed(t)
	f.needsOctavia(t)
	span := 3 * time.Minute
	if text := os.Getenv("KURYR_OUTAGE"); text != "" {
		span = must(time.ParseDuration(text))(t)
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("KURYR_OUTAGE_SEED"); text != "" {
		seed = must(strconv.ParseUint(text, 10, 64))(t)
	}
	t.Logf("KURYR_OUTAGE=%s KURYR_OUTAGE_SEED=%d", span, seed)
	f.blamesBed(t)
	f.leavesNoServices(t)
	f.pools(t, map[string]any{"min": 5, "max": 40, "batch": 10, "ttl": "5m", "cooldown": "2s"})

	o := &outage{fixture: f, t: t, choose: rand.New(rand.NewPCG(seed, 0)), broken: map[string]string{}, stuck: map[string]bool{}}
	o.prepare()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	for slot := range 2 {
		work.Go(func() { o.namespaces(ctx, slot) })
	}
	work.Go(func() { o.rollPods(ctx) })
	work.Go(func() { o.watchErrors(ctx) })
	o.faults(time.Now().Add(span))
	back := time.Now()
	stop()
	work.Wait()
	t.Logf("%d faults, %d times Octavia was killed in the middle of a change; it left %d load balancers PENDING for ever "+
		"(given ERROR by hand: %d) and %d others with something in ERROR or that OVN has not: %v",
		o.done, o.inside, len(o.stuck), o.remedied, len(o.broken), o.broken)
	if len(o.stuck)+len(o.broken) == 0 {
		t.Error("no kill left anything in ERROR or PENDING: nothing was tested")
	}
	o.rest(back)
}

// outage is what happens in the meantime.
type outage struct {
	*fixture
	t      *testing.T
	choose *rand.Rand // of the faults alone: they come one after the other

	done, inside, remedied int
	started                time.Time       // when Octavia last did
	agent                  time.Time       // when its driver's agent last did
	watches                time.Time       // when the API server was last taken away
	stuck                  map[string]bool // load balancers PENDING while nobody was at work on them

	mu     sync.Mutex
	broken map[string]string // load balancer → what was seen of it
}

// parts are what is stopped or killed, as the bed names it.
var parts = []string{
	"neutron", "keystone", "octavia", "octavia-driver-agent", "kube-apiserver", "ovn-northd",
	"n1-ovn-controller", "n2-ovn-controller", "kube-controller-manager", "kuryr",
}

// faults makes one after the other until the time is over and Octavia has been left with
// something to mend.
func (o *outage) faults(end time.Time) {
	for extra := 0; extra < insides; {
		over := time.Now().After(end)
		if over {
			if extra++; o.damaged() {
				break
			}
		}
		down := time.Duration(2000+o.choose.IntN(13_000)) * time.Millisecond
		switch {
		case over || o.choose.IntN(3) == 0:
			o.killInside(down)
		default:
			part := parts[o.choose.IntN(len(parts))]
			// Away twice within two minutes, client-go's watches come back up to a minute after the API server,
			// those of Kubernetes' own controllers, too (docs/controller.md). That is not what is measured here.
			if part == "kube-apiserver" && time.Since(o.watches) < 2*time.Minute {
				part = "kube-controller-manager"
			} else if part == "kube-apiserver" {
				o.watches = time.Now()
			}
			o.fault(part, []string{"stop", "kill"}[o.choose.IntN(2)], down)
		}
		if o.done++; o.done%3 == 0 {
			o.remedy()
		}
		o.t.Logf("%s  fault %d is over", time.Now().Format(time.TimeOnly), o.done)
		time.Sleep(time.Duration(1000+o.choose.IntN(4000)) * time.Millisecond)
	}
	o.bed("start", "octavia-driver-agent")
}

// fault has a part away for a while.
func (o *outage) fault(part, how string, down time.Duration) {
	o.t.Logf("%s  %s %s for %s", time.Now().Format(time.TimeOnly), how, part, down.Round(time.Second))
	if part == "kuryr" {
		o.killController()
		return
	}
	o.bed(how, part)
	if part == "octavia" {
		o.note()
	}
	time.Sleep(down)
	o.bed("start", part)
	switch part {
	case "octavia":
		o.started = time.Now()
	case "octavia-driver-agent":
		o.agent = time.Now()
	}
}

// killInside kills Octavia in the middle of a change of members, which the pod that goes
// makes necessary. Two times of three its driver's agent has gone before, so that the
// change is done in OVN, or half of it, and its end is not told.
func (o *outage) killInside(down time.Duration) {
	pod := o.poke()
	agent := o.choose.IntN(3) > 0
	delay := time.Duration(o.choose.IntN(400)) * time.Millisecond
	o.t.Logf("%s  kill octavia (its driver's agent before: %t) for %s, in the middle of what the end of pod %s makes necessary",
		time.Now().Format(time.TimeOnly), agent, down.Round(time.Second), pod)
	if agent {
		o.bed("kill", "octavia-driver-agent")
		delay *= 3
	}
	ctx, cancel := context.WithTimeout(o.t.Context(), 20*time.Second)
	defer cancel()
	since := o.sql("SELECT UTC_TIMESTAMP() - INTERVAL 1 SECOND")
	pending := fmt.Sprintf("SELECT COUNT(*) FROM load_balancer WHERE provisioning_status LIKE 'PENDING%%' AND updated_at >= '%s'", since)
	for o.sql(pending) == "0" && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(delay)
	o.bed("kill", "octavia")
	o.inside++
	o.note()
	time.Sleep(down)
	o.bed("start", "octavia-driver-agent", "octavia")
	o.started = time.Now()
}

// poke deletes a pod of cluster DNS, or of a Service that is there all the time.
func (o *outage) poke() string {
	namespace, labels := o.namespace, map[string]string{"app": fmt.Sprintf("steady-%d", o.choose.IntN(steady))}
	if o.choose.IntN(2) == 0 {
		namespace, labels = "kube-system", map[string]string{"k8s-app": "kube-dns"}
	}
	var pods corev1.PodList
	if err := o.Client.List(o.t.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels(labels)); err != nil || len(pods.Items) == 0 {
		return fmt.Sprintf("of %v (none is there: %v)", labels, err)
	}
	pod := &pods.Items[o.choose.IntN(len(pods.Items))]
	if err := o.Client.Delete(o.t.Context(), pod); err != nil {
		return fmt.Sprintf("%s (%v)", pod.Name, err)
	}
	return pod.Name
}

// killController kills Kuryr's controller. Its pod is deleted: kubelet starts a container
// that ends again and again later and later, and that is not what is to be seen here.
func (o *outage) killController() {
	for _, pod := range o.kuryrPods(o.t.Context(), o.t) {
		if !strings.HasPrefix(pod.Name, "kuryr-controller") {
			continue
		}
		_, err := o.OnNode(o.t.Context(), pod.Spec.NodeName, "pkill", "-KILL", "-f", "^/usr/local/bin/kuryr controller")
		gone := o.Client.Delete(o.t.Context(), &pod, client.GracePeriodSeconds(0))
		o.t.Logf("pod %s killed: %v, %v", pod.Name, err, gone)
	}
}

// bed runs a verb of the bed's, which is not part of the test.
func (o *outage) bed(args ...string) {
	o.t.Helper()
	if _, err := cluster.Bed(o.t.Context(), args...); err != nil {
		o.t.Fatal(err)
	}
}

// note takes down, while Octavia is away, what it has left: load balancers that stay
// PENDING for ever, and those in which something else is wrong.
func (o *outage) note() {
	for _, row := range o.octaviaRows() {
		if row.kind == "load_balancer" && strings.HasPrefix(row.status, "PENDING") && !o.stuck[row.id] {
			o.stuck[row.id] = true
			o.t.Logf("%s  load balancer %s stays %s", time.Now().Format(time.TimeOnly), row.id, row.status)
		}
	}
	o.noteBroken()
	members, err := o.octaviaMembers(o.t.Context())
	if err != nil {
		o.t.Error(err)
		return
	}
	rows, err := ovnBalancers(o.t.Context())
	if err != nil {
		o.t.Error(err)
		return
	}
	for lb, differs := range differences(members, rows) {
		if !o.stuck[lb] {
			o.breaks(lb, differs)
		}
	}
}

// noteBroken takes down what is in ERROR.
func (o *outage) noteBroken() {
	for _, row := range o.octaviaRows() {
		if row.status == "ERROR" && row.kind != "load_balancer" { // those may have it by hand
			o.breaks(row.balancer, row.kind+" in ERROR")
		}
	}
}

func (o *outage) breaks(lb, what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.broken[lb] == "" {
		o.broken[lb] = what
		o.t.Logf("%s  load balancer %s: %s", time.Now().Format(time.TimeOnly), lb, what)
	}
}

func (o *outage) damaged() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.stuck)+len(o.broken) > 0
}

// watchErrors looks for ERROR all the time: it may be mended a moment later.
func (o *outage) watchErrors(ctx context.Context) {
	for ctx.Err() == nil {
		o.noteBroken()
		time.Sleep(time.Second)
	}
}

// remedy does what docs/services.md tells operators about what stays PENDING for ever: all
// that was so before Octavia started, or before its driver's agent did, which alone hears of
// the end of a change. What the agent is told after its start has ten seconds to come.
func (o *outage) remedy() {
	since := o.started
	if o.agent.After(since) && time.Since(o.agent) > 10*time.Second {
		since = o.agent
	}
	before := since.UTC().Format(time.DateTime)
	for _, id := range strings.Fields(o.sql(fmt.Sprintf(
		"SELECT id FROM load_balancer WHERE provisioning_status LIKE 'PENDING%%' AND COALESCE(updated_at, created_at) < '%s'", before))) {
		o.sql(fmt.Sprintf("UPDATE load_balancer SET provisioning_status='ERROR' WHERE id='%s' AND provisioning_status LIKE 'PENDING%%'", id))
		o.remedied++
		o.t.Logf("%s  load balancer %s is given ERROR by hand", time.Now().Format(time.TimeOnly), id)
	}
}

// octaviaRow is an object of Octavia's that is neither ACTIVE nor gone.
type octaviaRow struct{ kind, id, status, balancer string }

func (o *outage) octaviaRows() (rows []octaviaRow) {
	const unsettled = " NOT IN ('ACTIVE', 'DELETED')"
	text := o.sql("SELECT s.* FROM (SELECT 'load_balancer', id, provisioning_status, id AS of FROM load_balancer WHERE provisioning_status" + unsettled +
		" UNION ALL SELECT 'listener', id, provisioning_status, load_balancer_id FROM listener WHERE provisioning_status" + unsettled +
		" UNION ALL SELECT 'pool', id, provisioning_status, load_balancer_id FROM pool WHERE provisioning_status" + unsettled +
		" UNION ALL SELECT 'member', m.id, m.provisioning_status, p.load_balancer_id FROM member m JOIN pool p ON p.id = m.pool_id" +
		" WHERE m.provisioning_status" + unsettled + ") s JOIN load_balancer b ON b.id = s.of AND b.provisioning_status <> 'DELETED'")
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) == 4 {
			rows = append(rows, octaviaRow{words[0], words[1], words[2], words[3]})
		}
	}
	slices.SortFunc(rows, func(a, b octaviaRow) int { return cmp.Compare(a.balancer+a.kind+a.id, b.balancer+b.kind+b.id) })
	return rows
}

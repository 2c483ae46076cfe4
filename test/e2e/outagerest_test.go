// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// rest waits until all is as it is wanted, and first of all cluster DNS.
func (o *outage) rest(back time.Time) {
	o.t.Helper()
	ctx, cancel := context.WithDeadline(o.t.Context(), back.Add(restIn))
	defer cancel()
	o.remedy()
	dns := make(chan error, 1)
	go func() { dns <- o.dnsAnswers(ctx, back) }()
	if err := o.newService(ctx); err != nil {
		o.t.Errorf("a new Service after the outage: %v", err)
	}
	err := cluster.Until(ctx, func() error {
		o.remedy()
		return o.settled(ctx)
	})
	if e := <-dns; e != nil {
		o.t.Errorf("cluster DNS: %v", e)
	}
	if err != nil {
		o.t.Fatalf("not at rest %s after the cloud is back: %v", restIn, err)
	}
	o.t.Logf("at rest %.1f s after the cloud is back", time.Since(back).Seconds())
	o.pools(o.t, map[string]any{"min": 0, "batch": 1, "ttl": "0s"})
	ctx, cancel = context.WithTimeout(o.t.Context(), 3*patience)
	defer cancel()
	if err := cluster.Until(ctx, func() error { return o.rests(ctx) }); err != nil {
		o.t.Error(err)
	}
}

// newService creates a namespace with a Service, waits until the load balancer is Ready, and deletes the
// namespace. The new load balancer also proves to Kuryr that creations without an answer have ended
// (octavia.LeftVIPs), which allows the clocks of Neutron and Octavia to differ by 10 s.
func (o *outage) newService(ctx context.Context) error {
	pause(ctx, 12*time.Second)
	const name = "outage-after"
	if err := cluster.Until(ctx, func() error { return o.makeNamespace(ctx, name) }); err != nil {
		return err
	}
	err := cluster.Until(ctx, func() error {
		o.remedy()
		var b v1.KuryrLoadBalancer
		if err := o.Client.Get(ctx, client.ObjectKey{Namespace: name, Name: "web"}, &b); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(b.Status.Conditions, v1.ConditionReady); c == nil || c.Status != "True" {
			return fmt.Errorf("its KuryrLoadBalancer is not Ready: %+v", c)
		}
		return nil
	})
	o.leave([]string{name})
	return err
}

// dnsAnswers waits until twenty questions at once have their answers, three times in a row.
func (o *outage) dnsAnswers(ctx context.Context, back time.Time) error {
	const script = `for i in $(seq 10); do for how in +notcp +tcp; do
		(dig +short +tries=1 +time=2 $how @10.96.0.10 kubernetes.default.svc.cluster.local) & done; done; wait`
	var since time.Time
	for good := 0; good < 3; {
		began := time.Now()
		out, err := o.askClient(ctx, script)
		switch answers := strings.Count(out, "10.96.0.1"); {
		case err == nil && answers == 20:
			if good++; good == 1 {
				since = began
			}
		case ctx.Err() != nil:
			return fmt.Errorf("%d of 20 questions are answered %s after the cloud is back: %w", answers, time.Since(back).Round(time.Second), err)
		default:
			good = 0
			pause(ctx, 500*time.Millisecond)
		}
	}
	took := since.Sub(back)
	o.t.Logf("cluster DNS answers each question %.1f s after the cloud is back", took.Seconds())
	if took > dnsIn {
		return fmt.Errorf("it took %s, want at most %s", took.Round(time.Second), dnsIn)
	}
	return nil
}

// settled says what is not as it is wanted: first what costs least to see.
func (o *outage) settled(ctx context.Context) error {
	var namespaces corev1.NamespaceList
	if err := o.Client.List(ctx, &namespaces, client.MatchingLabels(outageLabel)); err != nil {
		return err
	}
	if n := len(namespaces.Items); n > 0 {
		return fmt.Errorf("%d namespaces are still there, %s for one: %+v", n, namespaces.Items[0].Name, namespaces.Items[0].Status.Conditions)
	}
	var balancers v1.KuryrLoadBalancerList
	if err := o.Client.List(ctx, &balancers); err != nil {
		return err
	}
	own, public := map[string]bool{}, map[string]bool{}
	for _, b := range balancers.Items {
		if c := meta.FindStatusCondition(b.Status.Conditions, v1.ConditionReady); c == nil || c.Status != "True" {
			return fmt.Errorf("KuryrLoadBalancer %s/%s is not Ready: %+v", b.Namespace, b.Name, c)
		}
		for _, lb := range b.Status.LoadBalancers {
			own[lb.ID] = true
		}
		if ip := b.Status.PublicIP; ip != nil && ip.Made {
			public[ip.ID] = true
		}
	}
	if err := o.cloudHas(ctx, own, public); err != nil {
		return err
	}
	if rows := o.octaviaRows(); len(rows) > 0 {
		return fmt.Errorf("Octavia has %+v", rows)
	}
	if err := o.serves(ctx, balancers.Items); err != nil {
		return err
	}
	return o.servicesAnswer(ctx)
}

// front is where a load balancer listens, as OVN sees it.
type front struct {
	balancer string // its ID
	port     string // <protocol>:<port>
}

// serves compares what stands behind each port of a Service: by its EndpointSlices, in
// Octavia, and in OVN.
func (o *outage) serves(ctx context.Context, balancers []v1.KuryrLoadBalancer) error {
	octavia, err := o.octaviaMembers(ctx)
	if err != nil {
		return err
	}
	ovn, err := ovnBalancers(ctx)
	if err != nil {
		return err
	}
	for _, b := range balancers {
		want, err := o.endpoints(ctx, b.Namespace, b.Name)
		if err != nil {
			return err
		}
		for port, addresses := range want {
			at := front{b.Status.LoadBalancers[0].ID, port}
			if got := octavia[at]; !slices.Equal(got, addresses) {
				return fmt.Errorf("%s of Service %s/%s has members %v in Octavia, want %v", port, b.Namespace, b.Name, got, addresses)
			}
		}
	}
	known := map[string]bool{}
	for _, b := range balancers {
		known[b.Status.LoadBalancers[0].ID] = true
	}
	for at := range ovn {
		if !known[at.balancer] {
			return fmt.Errorf("OVN has load balancer %s, which is of no Service", at.balancer)
		}
	}
	for lb, differs := range differences(octavia, ovn) {
		return fmt.Errorf("load balancer %s: %s", lb, differs)
	}
	return nil
}

// endpoints returns the ready endpoints of a Service by <protocol>:<port>, as IP:port, sorted.
func (o *outage) endpoints(ctx context.Context, namespace, name string) (map[string][]string, error) {
	var svc corev1.Service
	if err := o.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &svc); err != nil {
		return nil, err
	}
	var slicesOf discoveryv1.EndpointSliceList
	if err := o.Client.List(ctx, &slicesOf, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: name}); err != nil {
		return nil, err
	}
	by := map[string][]string{}
	for _, p := range svc.Spec.Ports {
		key := fmt.Sprintf("%s:%d", p.Protocol, p.Port)
		by[key] = nil
		for _, slice := range slicesOf.Items {
			for _, sp := range slice.Ports {
				if sp.Name == nil || *sp.Name != p.Name || *sp.Protocol != p.Protocol {
					continue
				}
				for _, e := range slice.Endpoints {
					if e.Conditions.Ready == nil || *e.Conditions.Ready {
						by[key] = append(by[key], net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*sp.Port))))
					}
				}
			}
		}
		slices.Sort(by[key])
	}
	return by, nil
}

// servicesAnswer asks each steady Service until all of its pods have answered, and the API
// server by its Service.
func (o *outage) servicesAnswer(ctx context.Context) error {
	out, err := o.askClient(ctx, "curl -sSk -m3 --noproxy '*' https://10.96.0.1/livez")
	if err != nil {
		return fmt.Errorf("the API server does not answer at its cluster IP: %w", err)
	}
	if out != "ok" {
		return fmt.Errorf("the API server answers %q at its cluster IP, want ok", out)
	}
	for i := range steady {
		name := fmt.Sprintf("steady-%d", i)
		pods, err := o.labelled(ctx, map[string]string{"app": name})
		if err != nil {
			return err
		}
		var svc corev1.Service
		if err := o.Client.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: name}, &svc); err != nil {
			return err
		}
		for _, from := range []struct {
			ask     asker
			address string
		}{{o.askClient, svc.Spec.ClusterIP}, {outside, publicIP(&svc)}} {
			if from.address == "" {
				continue
			}
			if err := from.ask.hears(ctx, from.address, names(pods)); err != nil {
				return fmt.Errorf("Service %s: %w", name, err)
			}
		}
	}
	return nil
}

// askClient runs a script in the client pod. Each of its questions gives up after 3 s; an exec whose
// stream hangs must not take the time of all later ones.
func (o *outage) askClient(ctx context.Context, script string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return o.Exec(ctx, o.namespace, "client", "sh", "-c", script)
}

func publicIP(svc *corev1.Service) string {
	for _, i := range svc.Status.LoadBalancer.Ingress {
		return i.IP
	}
	return ""
}

// hears says whether just these pods answer at an address, each question being answered.
func (a asker) hears(ctx context.Context, address string, want []string) error {
	script := fmt.Sprintf("for i in $(seq %d); do (out=$(%s); echo \"$out\") & done; wait", 12*len(want), get("http://"+address+"/hostname"))
	out, err := a(ctx, script)
	if err != nil {
		return err
	}
	got := slices.DeleteFunc(strings.Split(out, "\n"), func(s string) bool { return strings.TrimSpace(s) == "" })
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		return fmt.Errorf("%s is answered by %q, want %q", address, got, want)
	}
	return nil
}

// sql asks Octavia's database. Its API is what is away.
func (o *outage) sql(query string) string {
	o.t.Helper()
	return octaviaSQL(o.t, query)
}

func octaviaSQL(t testing.TB, query string) string {
	t.Helper()
	out, err := cluster.OnMachine(context.WithoutCancel(t.Context()), "mariadb", "--no-defaults",
		"--socket="+filepath.Join(os.Getenv("KURYR_BED"), "run/mysql.sock"), "-u", "root", "-N", "octavia", "-e", query)
	if err != nil {
		t.Error(err)
	}
	return out
}

// octaviaMembers returns the members of each listener, as IP:port, sorted, by Octavia's database.
func (o *outage) octaviaMembers(ctx context.Context) (map[front][]string, error) {
	by := map[front][]string{}
	text := o.sql("SELECT l.load_balancer_id, l.protocol, l.protocol_port, COALESCE(m.ip_address, '-'), COALESCE(m.protocol_port, 0) FROM listener l" +
		" JOIN load_balancer b ON b.id = l.load_balancer_id AND b.provisioning_status <> 'DELETED'" +
		" LEFT JOIN member m ON m.pool_id = l.default_pool_id")
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 5 {
			return nil, fmt.Errorf("Octavia's database says %q", line)
		}
		at := front{words[0], words[1] + ":" + words[2]}
		if by[at] = append([]string{}, by[at]...); words[3] != "-" {
			by[at] = append(by[at], net.JoinHostPort(words[3], words[4]))
		}
	}
	for _, all := range by {
		slices.Sort(all)
	}
	return by, ctx.Err()
}

// ovnBalancers returns what OVN's load balancers of Octavia balance to, the floating IPs' part
// left out. A listener without members has no entry in OVN.
func ovnBalancers(ctx context.Context) (map[front][]string, error) {
	out, err := cluster.OnMachine(ctx, "ovn-nbctl", "--format=json", "--columns=name,protocol,vips,external_ids", "list", "load_balancer")
	if err != nil {
		return nil, err
	}
	var table struct{ Data [][]json.RawMessage }
	if err := json.Unmarshal([]byte(out), &table); err != nil {
		return nil, fmt.Errorf("OVN's load balancers: %w", err)
	}
	by := map[front][]string{}
	for _, row := range table.Data {
		var name, protocol string
		err := json.Unmarshal(row[0], &name)
		_ = json.Unmarshal(row[1], &protocol) // none: an empty set
		vips, e1 := ovsdbMap(row[2])
		ids, e2 := ovsdbMap(row[3])
		if err := errors.Join(err, e1, e2); err != nil {
			return nil, err
		}
		if ids["neutron:vip"] == "" {
			continue
		}
		for vip, backends := range vips {
			if host, port, err := net.SplitHostPort(vip); err == nil && host == ids["neutron:vip"] {
				all := strings.Split(backends, ",")
				slices.Sort(all)
				by[front{name, strings.ToUpper(protocol) + ":" + port}] = all
			}
		}
	}
	return by, nil
}

// ovsdbMap reads ["map", [[key, value], ...]].
func ovsdbMap(raw json.RawMessage) (map[string]string, error) {
	var outer [2]json.RawMessage
	var pairs [][2]string
	if err := errors.Join(json.Unmarshal(raw, &outer), json.Unmarshal(outer[1], &pairs)); err != nil {
		return nil, fmt.Errorf("%s is no map of OVSDB: %w", raw, err)
	}
	all := map[string]string{}
	for _, p := range pairs {
		all[p[0]] = p[1]
	}
	return all, nil
}

// differences says, by load balancer, where OVN has other members than Octavia.
func differences(octavia, ovn map[front][]string) map[string]string {
	fronts := maps.Clone(octavia)
	maps.Copy(fronts, ovn)
	differ := map[string]string{}
	for at := range fronts {
		if have, want := ovn[at], octavia[at]; !slices.Equal(have, want) {
			differ[at.balancer] = fmt.Sprintf("%s has members %v in OVN, %v in Octavia", at.port, have, want)
		}
	}
	return differ
}

// bedFaults are lines by which the bed's own faults are known: hack/bed/README.md, Traps.
var bedFaults = regexp.MustCompile(`conn_update_state|assertion .* failed|Assertion .* failed`)

// blamesBed shows, if the test fails, what the bed's own daemons have logged of faults of theirs.
func (f *fixture) blamesBed(t testing.TB) {
	logs, _ := filepath.Glob(filepath.Join(os.Getenv("KURYR_BED"), "log", "*.log"))
	sizes := map[string]int64{}
	for _, name := range logs {
		if info, err := os.Stat(name); err == nil {
			sizes[name] = info.Size()
		}
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for name, from := range sizes {
			for _, line := range linesFrom(name, from, bedFaults) {
				t.Logf("the bed's own fault, hack/bed/README.md: %s: %s", filepath.Base(name), line)
			}
		}
	})
}

// linesFrom returns the lines of a file, from a place on, that match.
func linesFrom(name string, from int64, what *regexp.Regexp) (found []string) {
	file, err := os.Open(name)
	if err != nil {
		return []string{err.Error()}
	}
	defer file.Close()
	if _, err := file.Seek(from, 0); err != nil {
		return []string{err.Error()}
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if what.Match(lines.Bytes()) {
			found = append(found, lines.Text())
		}
	}
	return found
}

// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/crashtest"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// swept is a cloud for a sweep, which also has resources of others.
type swept interface {
	crashtest.Cloud
	// backend returns a new backend for the process that has ctx. Its requests pass the fence.
	backend(ctx context.Context, fence openstack.Fence) (sdn.Backend, error)
	pods() config.Pods // settings that fit the cloud
	mark() string      // the mark of the controller's resources
}

// clusterID marks the controller's resources.
const clusterID = "cluster"

// inMemory is the reference backend.
type inMemory struct {
	crashtest.Cloud
	cloud *memory.Cloud
}

func newInMemory(w *crashtest.World) swept {
	c := memory.New(memory.Subnet{
		ID: subnet, NetworkID: network, Prefix: netip.MustParsePrefix("10.1.0.0/16"), Gateway: netip.MustParseAddr("10.1.0.1"), MTU: 1442,
	})
	c.AddForeignPort()
	theirs := sdn.Owner{Kind: "kuryrportpool", Name: "theirs"}
	if _, err := c.Backend("other").CreatePorts(w.T.Context(), theirs, sdn.PortRequest{SubnetIDs: []string{subnet}}, 2); err != nil {
		w.T.Fatal(err)
	}
	return inMemory{w.Memory(c), c}
}

func (c inMemory) backend(context.Context, openstack.Fence) (sdn.Backend, error) {
	return c.cloud.Backend(clusterID), nil
}

func (c inMemory) pods() config.Pods {
	return config.Pods{SubnetIDs: []string{subnet}, SecurityGroupIDs: []string{group}}
}

func (c inMemory) mark() string { return clusterID }

// openstackAPI is an OpenStack with all its services below one URL.
type openstackAPI interface {
	http.Handler
	URL() string
	Clouds() []byte // a clouds.yaml for it, with a cloud kuryr
}

// openstackCloud is an OpenStack with the real backend. It is the simulator, or one project of a
// real OpenStack.
type openstackCloud struct {
	t                      testing.TB
	w                      *crashtest.World
	api                    openstackAPI
	token                  string
	cluster                string
	project, subnet, group string   // empty project: the credential's
	tenants                []string // further projects to list
	kinds                  []string // the kinds to list
	clouds                 string   // folder of the clouds.yaml of each process
}

// openstackKinds are all kinds that a controller of pods may touch.
var openstackKinds = []string{"port", "network", "subnet", "security-group", "trunk"}

func newOpenstack(w *crashtest.World) swept {
	c, err := openstacksim.New(openstacksim.Options{URL: "http://openstack.invalid", Seed: 1, Hosts: []string{w.Node}})
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(c.Close)
	o := &openstackCloud{t: w.T, w: w, api: c, cluster: clusterID, kinds: openstackKinds, clouds: w.T.TempDir()}
	o.logIn()
	o.furnish(w.Node)
	return o
}

// furnish creates what pods need, and resources of others.
func (o *openstackCloud) furnish(host string) {
	o.t.Helper()
	net := o.make("network", map[string]any{"name": "pods"})
	o.subnet = o.make("subnet", map[string]any{"network_id": net, "cidr": "10.1.0.0/16", "ip_version": 4})
	o.group = o.make("security-group", map[string]any{"name": "pods"})
	// Ports like Kuryr's: without an owner, of another cluster, and of a cluster whose name begins
	// with this one's.
	for i, mark := range []string{"", "kuryr.cluster=other kuryr.owner=kuryrportpool/theirs", "kuryr.cluster=" + o.cluster + "-2 kuryr.owner=kuryrportpool/theirs"} {
		o.make("port", map[string]any{
			"network_id": net, "name": sdn.FreePortName, "device_owner": "compute:kuryr", "description": mark,
			"binding:host_id": host, "tags": []string{fmt.Sprint("of somebody ", i)},
		})
	}
}

// ask sends a request with the world's own credential, an administrator's.
func (o *openstackCloud) ask(method, path string, in, out any) (http.Header, error) {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return nil, err
		}
	}
	r := httptest.NewRequest(method, o.api.URL()+path, &body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Auth-Token", o.token)
	answer := httptest.NewRecorder()
	if !answered(o.api, answer, r) {
		return nil, fmt.Errorf("%s %s: no answer", method, path)
	}
	if answer.Code >= 300 {
		return nil, fmt.Errorf("%s %s: %d %s", method, path, answer.Code, answer.Body)
	}
	if answer.Code == http.StatusNoContent {
		return answer.Header(), nil
	}
	return answer.Header(), json.Unmarshal(answer.Body.Bytes(), out)
}

// answered reports whether h has answered. It has not if it aborted in the way of net/http.
func answered(h http.Handler, w http.ResponseWriter, r *http.Request) (is bool) {
	defer func() {
		if p := recover(); p != nil && p != any(http.ErrAbortHandler) {
			panic(p)
		}
	}()
	h.ServeHTTP(w, r)
	return true
}

func (o *openstackCloud) logIn() {
	o.t.Helper()
	domain := map[string]any{"id": "default"}
	user := map[string]any{"name": "kuryr", "domain": domain, "password": "secret"}
	header, err := o.ask(http.MethodPost, "/identity/v3/auth/tokens", map[string]any{"auth": map[string]any{
		"identity": map[string]any{"methods": []string{"password"}, "password": map[string]any{"user": user}},
		"scope":    map[string]any{"project": map[string]any{"name": "k8s", "domain": domain}},
	}}, &struct{}{})
	if err != nil {
		o.t.Fatal(err)
	}
	o.token = header.Get("X-Subject-Token")
}

// make creates a resource, as another user does.
func (o *openstackCloud) make(kind string, fields map[string]any) (id string) {
	o.t.Helper()
	name := strings.ReplaceAll(kind, "-", "_")
	if o.project != "" {
		fields["project_id"] = o.project
	}
	var made map[string]struct{ ID string }
	if _, err := o.ask(http.MethodPost, "/networking/v2.0/"+kind+"s", map[string]any{name: fields}, &made); err != nil {
		o.t.Fatal(err)
	}
	return made[name].ID
}

// Resources implements sweep.Cloud.
func (o *openstackCloud) Resources() ([]crashtest.Resource, error) {
	var all []crashtest.Resource
	for _, kind := range o.kinds {
		rows, err := o.list(kind)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if madeByItself(kind, row) {
				continue
			}
			r, err := resource(kind, row)
			if err != nil {
				return nil, err
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// list returns all resources of a kind; if a project is set, those of the project and the tenants.
func (o *openstackCloud) list(kind string) ([]map[string]any, error) {
	path := "/networking/v2.0/" + kind + "s"
	switch kind {
	case "loadbalancer", "listener", "pool":
		path = "/load-balancer/v2.0/lbaas/" + kind + "s"
	}
	if o.project == "" {
		return o.rows(path, kind)
	}
	var all []map[string]any
	for _, project := range append([]string{o.project}, o.tenants...) {
		rows, err := o.rows(path+"?project_id="+project, kind)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

func (o *openstackCloud) rows(path, kind string) ([]map[string]any, error) {
	var lists map[string][]map[string]any
	if _, err := o.ask(http.MethodGet, path, nil, &lists); err != nil {
		return nil, err
	}
	return lists[strings.ReplaceAll(kind, "-", "_")+"s"], nil
}

// madeByItself reports whether the cloud creates a row for another resource: the port of a VIP, a
// router or a floating IP.
func madeByItself(kind string, row map[string]any) bool {
	name, _ := row["name"].(string)
	device, _ := row["device_owner"].(string)
	return kind == "port" && (strings.HasPrefix(name, "ovn-lb-vip-") || device == "Octavia" || strings.HasPrefix(device, "network:"))
}

// resource parses a row of Neutron or Octavia. It reads the mark by itself, and not as the backend
// does.
func resource(kind string, row map[string]any) (crashtest.Resource, error) {
	r := crashtest.Resource{Kind: kind, ID: row["id"].(string)}
	r.Project, _ = row["project_id"].(string)
	marks, _ := row["description"].(string)
	words := strings.Fields(marks)
	if kind == "loadbalancer" {
		tags, _ := row["tags"].([]any)
		for _, tag := range tags {
			words = append(words, tag.(string))
		}
	}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "kuryr.cluster":
			r.Cluster = value
		case "kuryr.owner":
			owner, err := sdn.ParseOwner(value)
			if err != nil {
				return r, err
			}
			r.Owner = owner
		}
	}
	for _, own := range []string{"status", "revision_number", "updated_at", "provisioning_status", "operating_status"} { // the cloud changes these itself
		delete(row, own)
	}
	if rules, is := row["security_group_rules"].([]any); is { // Neutron 26 (2025.1) shows them in any order
		slices.SortFunc(rules, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	content, err := json.Marshal(row)
	r.Content = string(content)
	return r, err
}

func (o *openstackCloud) backend(ctx context.Context, fence openstack.Fence) (sdn.Backend, error) {
	url := o.w.Serve(ctx, crashtest.HTTPCloud{Handler: o.api, URL: o.api.URL(), Name: openstackCall})
	file := filepath.Join(o.clouds, strings.TrimPrefix(url, "http://")+".yaml")
	if err := os.WriteFile(file, bytes.ReplaceAll(o.api.Clouds(), []byte(o.api.URL()), []byte(url)), 0o600); err != nil {
		return nil, err
	}
	timeout := 20 * time.Second
	if o.project != "" { // a busy real cloud may take longer without having lost a request
		timeout = 2 * time.Minute
	}
	return openstack.New(ctx, openstack.Config{
		ClusterID: o.cluster, Cloud: "kuryr", CloudsFile: file, RequestTimeout: timeout, RequestsPerSecond: 1000, Fence: fence,
	})
}

func (o *openstackCloud) pods() config.Pods {
	return config.Pods{ProjectID: o.project, SubnetIDs: []string{o.subnet}, SecurityGroupIDs: []string{o.group}}
}

func (o *openstackCloud) mark() string { return o.cluster }

// openstackCall names a request by its verb and resource, without IDs.
func openstackCall(r *http.Request) crashtest.Call {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // networking/v2.0/ports/ID
	if parts[0] == "identity" {
		return crashtest.Call{To: crashtest.Identity, What: r.Method + " " + r.URL.Path}
	}
	if parts[0] == "load-balancer" && len(parts) > 3 && parts[2] == "lbaas" {
		parts = append([]string{parts[0], parts[1]}, parts[3:]...)
	}
	what := r.Method + " " + strings.Join(parts[min(2, len(parts)):min(3, len(parts))], "")
	if len(parts) > 4 {
		what += "/" + parts[4]
	}
	return crashtest.Call{
		To: crashtest.TheCloud, What: what, Write: r.Method != http.MethodGet,
		Inventory: r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/ports") && !r.URL.Query().Has("id") && r.URL.Query().Get("limit") != "1",
	}
}

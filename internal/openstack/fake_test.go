// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack"
)

type object = map[string]any

// fake answers as Keystone and Neutron do, as far as the backend asks: states
// and words are those seen on Neutron 21.
type fake struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	requests []string // METHOD path, in order
	queries  []string
	bodies   []object
	// before may answer a request itself, and then returns true. It is called
	// with the lock held; n counts the requests of that method and path from 1.
	before   func(w http.ResponseWriter, r *http.Request, n int) bool
	ports    map[string]object
	subnets  map[string]object
	networks map[string]object
	groups   map[string]bool
	trunks   map[string]*fakeTrunk // by ID
	aliases  []string
	quota    int
	last     int
	token    int
}

type fakeTrunk struct {
	ID       string   `json:"id"`
	PortID   string   `json:"port_id"`
	Subports []object `json:"sub_ports"`
}

const (
	net1, subnet4, subnet6 = "c0000000-0000-4000-8000-000000000001", "50000000-0000-4000-8000-000000000004", "50000000-0000-4000-8000-000000000006"
	groupA, groupB         = "90000000-0000-4000-8000-00000000000a", "90000000-0000-4000-8000-00000000000b"
	parent, plainTrunk     = "a0000000-0000-4000-8000-000000000001", "70000000-0000-4000-8000-000000000001"
)

func newFake(t *testing.T) *fake {
	f := &fake{
		t: t, quota: 1000, ports: map[string]object{parent: {"id": parent}}, groups: map[string]bool{groupA: true, groupB: true},
		networks: map[string]object{net1: {"id": net1, "mtu": 1442}},
		subnets: map[string]object{
			subnet4: {"id": subnet4, "network_id": net1, "cidr": "10.1.0.0/16", "gateway_ip": "10.1.0.1", "host_routes": []any{}},
			subnet6: {"id": subnet6, "network_id": net1, "cidr": "fd00:1::/64", "gateway_ip": nil, "host_routes": []any{}},
		},
		trunks:  map[string]*fakeTrunk{plainTrunk: {ID: plainTrunk, PortID: parent}},
		aliases: []string{"trunk", "quotas"},
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// backend returns a backend of one cluster on the fake.
func (f *fake) backend(cluster string, change ...func(*openstack.Config)) *openstack.Backend {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "clouds.yaml")
	yaml := "clouds: {fake: {auth: {auth_url: " + f.URL + "/v3, username: kuryr, password: s3cret, project_name: k8s, user_domain_id: default, project_domain_id: default}, region_name: R}}\n"
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		f.t.Fatal(err)
	}
	c := openstack.Config{Cloud: "fake", CloudsFile: file, ClusterID: cluster, RequestsPerSecond: 10000, RequestTimeout: 20 * time.Second}
	for _, ch := range change {
		ch(&c)
	}
	b, err := openstack.New(f.t.Context(), c)
	if err != nil {
		f.t.Fatalf("New: %v", err)
	}
	return b
}

// counts returns how often each request was made, IDs left out.
func (f *fake) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for _, r := range f.requests {
		out[r]++
	}
	return out
}

// holds says whether there is a port.
func (f *fake) holds(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ports[id] != nil
}

// limit lets there be n ports more.
func (f *fake) limit(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quota = len(f.ports) + n
}

// subports returns the VLAN IDs of the trunk by port.
func (f *fake) subports() map[string]int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int32{}
	for _, s := range f.trunks[plainTrunk].Subports {
		out[s["port_id"].(string)] = int32(s["segmentation_id"].(float64))
	}
	return out
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	id := ""
	if len(path) > 2 && path[0] == "v2.0" {
		id, path[2] = path[2], "ID"
	}
	what := r.Method + " " + strings.Join(path, "/")
	f.requests = append(f.requests, what)
	f.queries = append(f.queries, r.URL.RawQuery)
	n := 0
	for _, q := range f.requests {
		if q == what {
			n++
		}
	}
	var body object
	_ = json.NewDecoder(r.Body).Decode(&body)
	f.bodies = append(f.bodies, body)
	if f.before != nil && f.before(w, r, n) {
		return
	}
	if what == "POST v3/auth/tokens" {
		f.logIn(w)
		return
	}
	if r.Header.Get("X-Auth-Token") != "token-"+strconv.Itoa(f.token) {
		answer(w, 401, object{"error": object{"code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication."}})
		return
	}
	switch what {
	case "GET v2.0/extensions":
		var all []object
		for _, a := range f.aliases {
			all = append(all, object{"alias": a})
		}
		answer(w, 200, object{"extensions": all})
	case "GET v2.0/subnets/ID":
		f.one(w, "Subnet", "subnet", f.subnets[id])
	case "GET v2.0/subnets": // of a network, for how they give addresses
		answer(w, 200, object{"subnets": []object{{"ipv6_address_mode": nil}}})
	case "GET v2.0/networks/ID":
		f.one(w, "Network", "network", f.networks[id])
	case "POST v2.0/ports":
		f.makePorts(w, body)
	case "GET v2.0/ports":
		f.listPorts(w, r)
	case "GET v2.0/ports/ID":
		f.one(w, "Port", "port", f.withTrunk(f.ports[id]))
	case "PUT v2.0/ports/ID":
		f.change(w, f.ports[id], body)
	case "DELETE v2.0/ports/ID":
		f.remove(w, id)
	case "GET v2.0/trunks":
		var all []*fakeTrunk
		for _, t := range f.trunks {
			all = append(all, t)
		}
		answer(w, 200, object{"trunks": all})
	case "PUT v2.0/trunks/ID/add_subports":
		f.addSubports(w, f.trunks[id], body)
	case "PUT v2.0/trunks/ID/remove_subports":
		f.removeSubports(w, f.trunks[id], body)
	default:
		f.t.Errorf("unexpected request %s", what)
		w.WriteHeader(http.StatusNotFound)
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, kind, format string, args ...any) {
	answer(w, status, object{"NeutronError": object{"type": kind, "message": fmt.Sprintf(format, args...), "detail": ""}})
}

func (f *fake) logIn(w http.ResponseWriter) {
	f.token++
	w.Header().Set("X-Subject-Token", "token-"+strconv.Itoa(f.token))
	answer(w, 201, object{"token": object{
		"expires_at": "2099-01-01T00:00:00.000000Z",
		"catalog": []object{{"type": "network", "name": "neutron", "endpoints": []object{
			{"interface": "public", "region": "R", "region_id": "R", "url": f.URL},
		}}},
	}})
}

func (f *fake) one(w http.ResponseWriter, kind, name string, o object) {
	if o == nil {
		refuse(w, 404, kind+"NotFound", "%s could not be found.", kind)
		return
	}
	answer(w, 200, object{name: o})
}

func (f *fake) makePorts(w http.ResponseWriter, body object) {
	wanted := body["ports"].([]any)
	if len(f.ports)+len(wanted) > f.quota {
		refuse(w, 409, "OverQuota", "Quota exceeded for resources: ['port'].")
		return
	}
	var made []object
	for _, item := range wanted {
		p := item.(object)
		if bad := f.missingGroup(p["security_groups"]); bad != "" {
			refuse(w, 404, "SecurityGroupNotFound", "Security group %s does not exist", bad)
			return
		}
		made = append(made, f.newPort(p))
	}
	for _, p := range made {
		f.ports[p["id"].(string)] = p
	}
	answer(w, 201, object{"ports": made})
}

func (f *fake) newPort(p object) object {
	f.last++
	out := object{
		"id": fmt.Sprintf("b0000000-0000-4000-8000-%012d", f.last), "status": "DOWN", "project_id": "project",
		"mac_address": fmt.Sprintf("FA:16:3e:00:%02x:%02x", f.last>>8, f.last&0xff), "device_id": "",
		"created_at": "2026-11-21T09:26:31Z", "binding:vif_type": "unbound", "binding:vif_details": object{},
	}
	for k, v := range p {
		out[k] = v
	}
	if p["security_groups"] == nil {
		out["security_groups"] = []string{"default"}
	}
	switch p["binding:host_id"] {
	case nil:
		out["binding:host_id"] = ""
	case "n1":
		out["binding:vif_type"] = "ovs"
		out["binding:vif_details"] = object{"port_filter": true, "connectivity": "l2"}
	case "hybrid":
		out["binding:vif_type"] = "ovs"
		out["binding:vif_details"] = object{"port_filter": true, "ovs_hybrid_plug": true, "bridge_name": "br-int"}
	default:
		out["binding:vif_type"] = "binding_failed"
	}
	var ips []object
	for _, item := range p["fixed_ips"].([]any) {
		id := item.(object)["subnet_id"].(string)
		ip := netip.MustParsePrefix(f.subnets[id]["cidr"].(string)).Addr().Next()
		for range f.last {
			ip = ip.Next()
		}
		ips = append(ips, object{"subnet_id": id, "ip_address": ip.String()})
	}
	out["fixed_ips"] = ips
	return out
}

func (f *fake) missingGroup(groups any) string {
	list, _ := groups.([]any)
	for _, g := range list {
		if !f.groups[g.(string)] {
			return g.(string)
		}
	}
	return ""
}

func (f *fake) listPorts(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	ids := []string{}
	for id, p := range f.ports {
		owner, _ := p["device_owner"].(string)
		if name := q.Get("name"); name != "" && p["name"] != name {
			continue
		}
		if (q["device_owner"] == nil || slices.Contains(q["device_owner"], owner)) && (q["id"] == nil || slices.Contains(q["id"], id)) && id > q.Get("marker") {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	links := []object{}
	if limit, err := strconv.Atoi(q.Get("limit")); err == nil && len(ids) >= limit {
		ids, links = ids[:limit], append(links, object{"rel": "next", "href": r.URL.String()})
	}
	all := []object{}
	for _, id := range ids {
		all = append(all, f.ports[id])
	}
	answer(w, 200, object{"ports": all, "ports_links": links})
}

func (f *fake) change(w http.ResponseWriter, p, body object) {
	if p == nil {
		refuse(w, 404, "PortNotFound", "Port x could not be found.")
		return
	}
	change := body["port"].(object)
	if bad := f.missingGroup(change["security_groups"]); bad != "" {
		refuse(w, 404, "SecurityGroupNotFound", "Security group %s does not exist", bad)
		return
	}
	for k, v := range change {
		p[k] = v
	}
	answer(w, 200, object{"port": p})
}

func (f *fake) remove(w http.ResponseWriter, id string) {
	switch {
	case f.ports[id] == nil:
		refuse(w, 404, "PortNotFound", "Port %s could not be found.", id)
	case f.ports[id]["device_owner"] == "trunk:subport":
		refuse(w, 409, "PortInUseAsSubPort", "Port %s is currently a subport for trunk %s.", id, plainTrunk)
	default:
		delete(f.ports, id)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (f *fake) withTrunk(p object) object {
	for _, t := range f.trunks {
		if p != nil && p["id"] == t.PortID {
			p["trunk_details"] = object{"trunk_id": t.ID, "sub_ports": t.Subports}
		}
	}
	return p
}

func (f *fake) addSubports(w http.ResponseWriter, t *fakeTrunk, body object) {
	for _, item := range body["sub_ports"].([]any) {
		s := item.(object)
		for _, other := range t.Subports {
			if other["segmentation_id"] == s["segmentation_id"] {
				refuse(w, 409, "DuplicateSubPort", "segmentation_type vlan and segmentation_id %v already in use on trunk %s.", s["segmentation_id"], t.ID)
				return
			}
		}
	}
	for _, item := range body["sub_ports"].([]any) {
		s := item.(object)
		f.ports[s["port_id"].(string)]["device_owner"] = "trunk:subport"
		t.Subports = append(t.Subports, s)
	}
	answer(w, 200, t)
}

func (f *fake) removeSubports(w http.ResponseWriter, t *fakeTrunk, body object) {
	for _, item := range body["sub_ports"].([]any) {
		id := item.(object)["port_id"].(string)
		i := slices.IndexFunc(t.Subports, func(s object) bool { return s["port_id"] == id })
		if i < 0 {
			refuse(w, 404, "SubPortNotFound", "SubPort %s on trunk %s could not be found.", id, t.ID)
			return
		}
		t.Subports = slices.Delete(t.Subports, i, i+1)
		f.ports[id]["device_owner"] = ""
	}
	answer(w, 200, t)
}

// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
	"github.com/kuryr-go/kuryr/openstacksim/internal/neutron"
)

const (
	ours   = "11111111111111111111111111111111" // the project of member and admin
	theirs = "22222222222222222222222222222222"
)

var (
	member = keystone.Caller{ProjectID: ours, Roles: []string{"member"}}
	admin  = keystone.Caller{ProjectID: ours, Roles: []string{"admin", "member"}}
	other  = keystone.Caller{ProjectID: theirs, Roles: []string{"member"}}
)

// object is a JSON object, list a JSON array.
type (
	object = map[string]any
	list   = []any
	caller = keystone.Caller
)

// desk sends requests to a simulated Neutron.
type desk struct {
	t testing.TB
	*neutron.Service

	mu   sync.Mutex
	late []func() // delayed work: wait runs it
}

// newDesk makes a service with the live host "n1". Quotas are off.
func newDesk(t testing.TB, change ...func(*neutron.Options)) *desk {
	d := &desk{t: t}
	var n uint64
	var mu sync.Mutex
	o := neutron.Options{
		URL: "http://sim", Now: func() time.Time { return time.Unix(0, 0) }, Hosts: []string{"n1", "n2"},
		Quota: map[string]int{"port": -1, "network": -1, "subnet": -1, "security_group": -1, "security_group_rule": -1},
		NewID: func() string {
			mu.Lock()
			defer mu.Unlock()
			n++
			var b [8]byte
			binary.BigEndian.PutUint64(b[:], n*0x9e3779b97f4a7c15) // spread like real ones
			return fmt.Sprintf("%x-%x-4000-8000-%012x", b[:4], b[4:6], n)
		},
		After: func(after time.Duration, f func()) {
			if after <= 0 {
				f()
				return
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.late = append(d.late, f)
		},
	}
	for _, f := range change {
		f(&o)
	}
	d.Service = neutron.New(o)
	return d
}

// wait runs all delayed work.
func (d *desk) wait() {
	d.mu.Lock()
	late := d.late
	d.late = nil
	d.mu.Unlock()
	for _, f := range late {
		f()
	}
}

// ask sends a request and returns the status and the answer. body is JSON as text, or a value to
// be marshalled.
func (d *desk) ask(who keystone.Caller, method, path string, body any) (int, object) {
	d.t.Helper()
	status, text := d.raw(who, method, path, body)
	var out object
	if len(text) > 0 {
		if err := json.Unmarshal(text, &out); err != nil {
			d.t.Fatalf("%s %s: answer %q: %v", method, path, text, err)
		}
	}
	return status, out
}

func (d *desk) raw(who keystone.Caller, method, path string, body any) (int, []byte) {
	var text []byte
	switch b := body.(type) {
	case nil:
	case string:
		text = []byte(b)
	default:
		var err error
		if text, err = json.Marshal(b); err != nil {
			d.t.Fatal(err)
		}
	}
	r := httptest.NewRequest(method, "/v2.0"+path, bytes.NewReader(text))
	w := httptest.NewRecorder()
	d.Handle(w, r, who)
	return w.Code, w.Body.Bytes()
}

// make creates one resource and returns it.
func (d *desk) make(who keystone.Caller, one string, what object) object {
	d.t.Helper()
	status, answer := d.ask(who, http.MethodPost, "/"+strings.ReplaceAll(one, "_", "-")+"s", object{one: what})
	if status != http.StatusCreated {
		d.t.Fatalf("POST of %s %v: %d %v", one, what, status, answer)
	}
	return answer[one].(object)
}

// get reads one resource as an admin.
func (d *desk) get(one, id string) object {
	d.t.Helper()
	status, answer := d.ask(admin, http.MethodGet, "/"+strings.ReplaceAll(one, "_", "-")+"s/"+id, nil)
	if status != http.StatusOK {
		d.t.Fatalf("GET of %s %s: %d %v", one, id, status, answer)
	}
	return answer[one].(object)
}

// change makes a PUT as an admin, which must succeed.
func (d *desk) change(one, id string, what object) object {
	d.t.Helper()
	status, answer := d.ask(admin, http.MethodPut, "/"+strings.ReplaceAll(one, "_", "-")+"s/"+id, object{one: what})
	if status != http.StatusOK {
		d.t.Fatalf("PUT of %s %s %v: %d %v", one, id, what, status, answer)
	}
	return answer[one].(object)
}

// net makes a network of the member's project with a subnet.
func (d *desk) net(cidr string) (net, subnet string) {
	d.t.Helper()
	net = text(d.make(member, "network", object{"name": "n"}), "id")
	return net, d.subnet(net, cidr, nil)
}

func (d *desk) subnet(net, cidr string, more object) string {
	d.t.Helper()
	what := object{"network_id": net, "cidr": cidr, "ip_version": 4}
	if strings.Contains(cidr, ":") {
		what["ip_version"] = 6
	}
	for k, v := range more {
		what[k] = v
	}
	return text(d.make(member, "subnet", what), "id")
}

// text is the string at a key.
func text(o object, key string) string {
	s, _ := o[key].(string)
	return s
}

// refusal returns the refusal in an answer: "status type".
func refusal(status int, answer object) string {
	wrong, _ := answer["NeutronError"].(object)
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, text(wrong, "type")))
}

// addresses returns the addresses of a port.
func addresses(port object) []string {
	var out []string
	ips, _ := port["fixed_ips"].(list)
	for _, ip := range ips {
		out = append(out, text(ip.(object), "ip_address"))
	}
	return out
}

// activeLate makes bound ports ACTIVE at the next wait.
func activeLate(o *neutron.Options) {
	o.Active = func(string) (time.Duration, bool) { return time.Second, true }
}

func vip(net, subnet, address string) neutron.VIPPort {
	return neutron.VIPPort{ProjectID: ours, NetworkID: net, SubnetID: subnet, Address: netip.MustParseAddr(address), Name: "vip"}
}

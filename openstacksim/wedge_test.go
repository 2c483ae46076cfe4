// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/openstacksim"
)

// wedge is a load balancer of OVN's provider with a listener, a pool and two members.
type wedge struct {
	t                  *testing.T
	cloud              *openstacksim.Cloud
	k                  *client
	subnet             string
	lb, listener, pool string
	members            []string
}

const lbaasPath = "/load-balancer/v2/lbaas"

// all is a body that replaces a pool's members by those at these addresses.
func (w *wedge) all(addresses ...string) string {
	members := []string{}
	for _, a := range addresses {
		members = append(members, fmt.Sprintf(`{"address":%q,"protocol_port":80,"subnet_id":%q}`, a, w.subnet))
	}
	return `{"members":[` + strings.Join(members, ",") + `]}`
}

const firstIP, secondIP = "10.0.0.21", "10.0.0.22"

func newWedge(t *testing.T) *wedge {
	c, k := dialled(t)
	w := &wedge{t: t, cloud: c, k: k}
	network := makeNetwork(k, "n", "10.0.0.0/24")
	w.subnet = field(k.must(200, http.MethodGet, "/networking/v2.0/subnets?network_id="+network, ""), "id")
	w.lb = first(t, k.must(201, http.MethodPost, lbaasPath+"/loadbalancers", fmt.Sprintf(`{"loadbalancer":{"vip_network_id":%q,"provider":"ovn"}}`, network)))
	w.listener = first(t, k.must(201, http.MethodPost, lbaasPath+"/listeners", fmt.Sprintf(`{"listener":{"loadbalancer_id":%q,"protocol":"TCP","protocol_port":80}}`, w.lb)))
	w.pool = first(t, k.must(201, http.MethodPost, lbaasPath+"/pools",
		fmt.Sprintf(`{"pool":{"listener_id":%q,"protocol":"TCP","lb_algorithm":"SOURCE_IP_PORT"}}`, w.listener)))
	k.must(202, http.MethodPut, w.membersPath(), w.all(firstIP, secondIP))
	var list struct {
		Members []struct{ ID, Address string }
	}
	if err := json.Unmarshal([]byte(k.must(200, http.MethodGet, w.membersPath(), "")), &list); err != nil || len(list.Members) != 2 {
		t.Fatalf("the members are %+v, %v", list, err)
	}
	if list.Members[0].Address != firstIP {
		list.Members[0], list.Members[1] = list.Members[1], list.Members[0]
	}
	w.members = []string{list.Members[0].ID, list.Members[1].ID}
	return w
}

func (w *wedge) membersPath() string { return lbaasPath + "/pools/" + w.pool + "/members" }

// are checks the states of load balancer, listener, pool, and both members; "gone" is one
// that is not there.
func (w *wedge) are(when, want string) {
	w.t.Helper()
	paths := []string{"/loadbalancers/" + w.lb, "/listeners/" + w.listener, "/pools/" + w.pool}
	for _, m := range w.members {
		paths = append(paths, "/pools/"+w.pool+"/members/"+m)
	}
	var got []string
	for _, path := range paths {
		a := w.k.send(http.MethodGet, lbaasPath+path, "")
		if a.status != http.StatusOK {
			a.body = `"provisioning_status":"gone"`
		}
		got = append(got, field(a.body, "provisioning_status"))
	}
	if all := strings.Join(got, " "); all != want {
		w.t.Errorf("%s: load balancer, listener, pool and members are %s, want %s", when, all, want)
	}
}

// dies checks that the client of a call sees a cut connection.
func (w *wedge) dies(how, method, path, body string) {
	w.t.Helper()
	if err := w.cloud.Dial(fmt.Sprintf("load-balancer %s /v2/lbaas/**: {times: 1, fault: %s}", method, how)); err != nil {
		w.t.Fatal(err)
	}
	if a := w.k.send(method, path, body); a.err == nil {
		w.t.Errorf("%s %s that is %s: got %d %s, want a cut connection", method, path, how, a.status, a.body)
	}
}

// A member that the provider has lost: what octavia 11.0.0 with ovn-octavia-provider 3.0.0
// was seen to do with each request.
func TestLostMember(t *testing.T) {
	t.Run("deleted", func(t *testing.T) {
		w := newWedge(t)
		w.k.must(204, http.MethodPut, "/sim/members/"+w.members[1], `{"lost": true}`)
		for range 2 {
			w.k.must(204, http.MethodDelete, w.membersPath()+"/"+w.members[1], "")
			w.are("after a DELETE", "ACTIVE ACTIVE ACTIVE ACTIVE ERROR")
		}
		w.k.must(409, http.MethodPost, w.membersPath(), `{"member":{"address":"10.0.0.22","protocol_port":80}}`)
		w.k.must(200, http.MethodPut, w.membersPath()+"/"+w.members[1], `{"member":{"name":"again"}}`)
		w.are("after a PUT of the member alone", "ACTIVE ACTIVE ACTIVE ACTIVE ACTIVE")
		w.k.must(204, http.MethodDelete, w.membersPath()+"/"+w.members[1], "")
		w.are("as the provider did not make it", "ACTIVE ACTIVE ACTIVE ACTIVE ERROR")
	})
	t.Run("left out and put back", func(t *testing.T) {
		w := newWedge(t)
		if err := w.cloud.LoseMember(w.members[1]); err != nil {
			t.Fatal(err)
		}
		w.k.must(202, http.MethodPut, w.membersPath(), w.all(firstIP))
		w.are("after a PUT without it", "ACTIVE ACTIVE ACTIVE ACTIVE PENDING_DELETE")
		w.k.must(202, http.MethodPut, w.membersPath(), w.all(firstIP, secondIP))
		w.are("after a PUT with it", "ACTIVE ACTIVE ACTIVE ACTIVE ACTIVE")
		w.k.must(204, http.MethodDelete, w.membersPath()+"/"+w.members[1], "")
		w.are("after a DELETE", "ACTIVE ACTIVE ACTIVE ACTIVE gone")
	})
	t.Run("the only one", func(t *testing.T) {
		w := newWedge(t)
		w.k.must(204, http.MethodDelete, w.membersPath()+"/"+w.members[0], "")
		if err := w.cloud.LoseMember(w.members[1]); err != nil {
			t.Fatal(err)
		}
		w.k.must(202, http.MethodPut, w.membersPath(), w.all())
		w.are("after a PUT of none", "PENDING_UPDATE PENDING_UPDATE PENDING_UPDATE gone PENDING_DELETE")
		w.k.must(409, http.MethodDelete, lbaasPath+"/pools/"+w.pool, "")
		w.k.must(409, http.MethodDelete, lbaasPath+"/loadbalancers/"+w.lb+"?cascade=true", "")
		// What an operator does in Octavia's database.
		w.k.must(204, http.MethodPut, "/sim/loadbalancers/"+w.lb, `{"provisioning_status": "ACTIVE"}`)
		w.k.must(409, http.MethodPut, w.membersPath(), w.all(firstIP, secondIP)) // the pool is PENDING_UPDATE yet
		w.k.must(204, http.MethodDelete, lbaasPath+"/pools/"+w.pool, "")
		w.are("after the pool was deleted", "ACTIVE ACTIVE gone gone gone")
	})
	t.Run("in ERROR, to be deleted", func(t *testing.T) {
		w := newWedge(t)
		if err := w.cloud.SetProvisioning("loadbalancers", w.lb, "ERROR"); err != nil {
			t.Fatal(err)
		}
		w.k.must(409, http.MethodPut, w.membersPath(), w.all(firstIP))
		w.k.must(204, http.MethodDelete, lbaasPath+"/loadbalancers/"+w.lb+"?cascade=true", "")
		w.are("after a cascade", "gone gone gone gone gone")
	})
	w := newWedge(t)
	for path, body := range map[string]string{
		"/sim/members/none": `{"lost": true}`, "/sim/pools/none": `{"provisioning_status": "ERROR"}`, "/sim/members/" + w.lb: `{"provisioning_status": "ACTIVE"}`,
	} {
		w.k.must(404, http.MethodPut, path, body)
	}
	w.k.must(400, http.MethodPut, "/sim/pools/"+w.pool, `{"lost": true}`)
	w.k.must(404, http.MethodPut, "/sim/pools/"+w.pool, `{"provisioning_status": "FINE"}`)
}

// octavia-api is killed in the midst of a change: the client is cut off, and what is left
// never ends.
func TestKilledAPI(t *testing.T) {
	t.Run("before the provider heard", func(t *testing.T) {
		w := newWedge(t)
		w.dies("killed", http.MethodPut, w.membersPath(), w.all(firstIP))
		w.are("killed in a PUT of members", "PENDING_UPDATE PENDING_UPDATE PENDING_UPDATE PENDING_UPDATE PENDING_DELETE")
		w.k.must(409, http.MethodPut, w.membersPath(), w.all(firstIP))
		for _, path := range []string{"loadbalancers/" + w.lb, "listeners/" + w.listener, "pools/" + w.pool} {
			w.k.must(204, http.MethodPut, "/sim/"+path, `{"provisioning_status": "ACTIVE"}`)
		}
		w.k.must(202, http.MethodPut, w.membersPath(), w.all(firstIP, secondIP))
		w.are("put right in the database, and with all members wanted", "ACTIVE ACTIVE ACTIVE ACTIVE ACTIVE")
	})
	t.Run("before the provider heard of a deletion", func(t *testing.T) {
		w := newWedge(t)
		w.dies("killed", http.MethodDelete, lbaasPath+"/loadbalancers/"+w.lb+"?cascade=true", "")
		w.are("killed in a DELETE", "PENDING_DELETE ACTIVE ACTIVE ACTIVE ACTIVE")
	})
	for name, change := range map[string]struct{ method, path, body string }{
		"rolled back":                {http.MethodPut, "", "one"},
		"a deletion was rolled back": {http.MethodDelete, "/1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWedge(t)
			w.dies("rolled-back", change.method, w.membersPath()+strings.Replace(change.path, "1", w.members[1], 1), strings.Replace(change.body, "one", w.all(firstIP), 1))
			w.are("rolled back", "ACTIVE ACTIVE ACTIVE ACTIVE ACTIVE")
			w.k.must(204, http.MethodDelete, w.membersPath()+"/"+w.members[1], "")
			w.are("deleted again", "ACTIVE ACTIVE ACTIVE ACTIVE ERROR")
			w.k.must(204, http.MethodDelete, lbaasPath+"/pools/"+w.pool, "")
			w.are("after the pool was deleted", "ACTIVE ACTIVE gone gone gone")
		})
	}
	t.Run("a creation was rolled back", func(t *testing.T) {
		w := newWedge(t)
		network := makeNetwork(w.k, "m", "10.9.0.0/24")
		before := w.cloud.Objects()
		w.dies("rolled-back", http.MethodPost, lbaasPath+"/loadbalancers", fmt.Sprintf(`{"loadbalancer":{"vip_network_id":%q,"provider":"ovn"}}`, network))
		if after := w.cloud.Objects(); after["loadbalancers"] != before["loadbalancers"] || after["ports"] != before["ports"]+1 {
			t.Errorf("%v before and %v after: want the port of the VIP, and no load balancer", before, after)
		}
	})
}

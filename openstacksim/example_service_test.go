// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/kuryr-go/kuryr/openstacksim"
)

// nova makes servers, which are ACTIVE at once, and shows each project its own.
type nova struct {
	mu      sync.Mutex
	servers []server
}

type server struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Status  string `json:"status"`
	Project string `json:"tenant_id"`
}

func (*nova) Type() string    { return "compute" }
func (*nova) Version() string { return "v2.1" }

func (n *nova) Handle(w http.ResponseWriter, r *http.Request, who openstacksim.Caller) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch r.Method + " " + r.URL.Path {
	case "POST /v2.1/servers":
		var asked struct{ Server server }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s := server{fmt.Sprintf("server-%d", len(n.servers)), asked.Server.Name, "ACTIVE", who.ProjectID}
		n.servers = append(n.servers, s)
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]server{"server": s})
	case "GET /v2.1/servers/detail":
		own := []server{}
		for _, s := range n.servers {
			if s.Project == who.ProjectID {
				own = append(own, s)
			}
		}
		_ = json.NewEncoder(w).Encode(map[string][]server{"servers": own})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// A small Nova beside Keystone, Neutron and Octavia. gophercloud finds it in the
// catalogue, and what is dialled for it happens.
func ExampleService() {
	t, end := example() // in a test, t is its *testing.T
	defer end()

	cloud := openstacksim.Start(t, func(o *openstacksim.Options) { o.Services = []openstacksim.Service{&nova{}} })
	if err := cloud.Dial("compute POST /v2.1/servers: [503, ok]"); err != nil {
		t.Fatalf("%v", err)
	}
	login := cloud.ClientConfig()
	provider, err := openstack.AuthenticatedClient(t.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: login.AuthURL,
		Username:         login.Username,
		Password:         login.Password,
		DomainName:       login.UserDomainName,
		TenantName:       login.ProjectName,
	})
	if err != nil {
		t.Fatalf("logging in: %v", err)
	}
	client, err := openstack.NewComputeV2(provider, gophercloud.EndpointOpts{Region: login.RegionName})
	if err != nil {
		t.Fatalf("finding Nova: %v", err)
	}
	for range 2 {
		vm, err := servers.Create(t.Context(), client, servers.CreateOpts{Name: "vm"}, nil).Extract()
		if err != nil {
			fmt.Println("not available:", gophercloud.ResponseCodeIs(err, 503))
			continue
		}
		fmt.Println(vm.ID)
	}
	fmt.Println(cloud.Count("POST", "servers", "202"), "server")
	// Output:
	// not available: true
	// server-0
	// 1 server
}

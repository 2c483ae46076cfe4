// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// LoseMember has OVN forget a member that Octavia has, as after a restored database or a
// killed octavia-api. Octavia shows it ACTIVE. To delete it ends with the member in ERROR,
// each time; to replace the pool's members without it leaves it PENDING_DELETE for ever,
// and the load balancer too if the pool has no other member. To replace them with it makes
// it again. To delete the pool works.
func (c *Cloud) LoseMember(id string) error {
	if !c.octavia.LoseMember(id) {
		return fmt.Errorf("there is no member %s", id)
	}
	return nil
}

// SetProvisioning writes the provisioning_status of one load balancer, listener, pool or member, as
// an operator does in Octavia's database for an object that stays PENDING. collection is
// loadbalancers, listeners, pools or members. Nothing else changes.
func (c *Cloud) SetProvisioning(collection, id, status string) error {
	if !slices.Contains(provisioning, status) {
		return fmt.Errorf("provisioning_status %q is none of %s", status, strings.Join(provisioning, ", "))
	}
	if !c.octavia.SetProvisioning(collection, id, status) {
		return fmt.Errorf("there is no %s in %s", id, collection)
	}
	return nil
}

var provisioning = []string{"ACTIVE", "ERROR", "PENDING_CREATE", "PENDING_UPDATE", "PENDING_DELETE"}

// adminBalancers answers PUT /sim/COLLECTION/ID with {"provisioning_status": "ACTIVE"}, and
// PUT /sim/members/ID with {"lost": true}.
func (c *Cloud) adminBalancers(w http.ResponseWriter, r *http.Request, collection, id string) {
	var asked struct {
		Status string `json:"provisioning_status"`
		Lost   bool   `json:"lost"`
	}
	err := json.NewDecoder(io.LimitReader(r.Body, 1<<10)).Decode(&asked)
	if err != nil || (asked.Status == "") != asked.Lost || asked.Lost && collection != "members" {
		write(w, http.StatusBadRequest, problem(`write {"provisioning_status": "ACTIVE"}, or of a member {"lost": true}`))
		return
	}
	if asked.Lost {
		err = c.LoseMember(id)
	} else {
		err = c.SetProvisioning(collection, id, asked.Status)
	}
	if err != nil {
		write(w, http.StatusNotFound, problem(err.Error()))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestAListIsWrittenWithoutTheLock changes ports while a list of them is being written. The list
// comes in parts and shows the ports before the change.
func TestAListIsWrittenWithoutTheLock(t *testing.T) {
	d := newDesk(t)
	net, _ := d.net("10.0.0.0/16")
	const many = 100
	items := make(list, many)
	for i := range items {
		items[i] = object{"network_id": net, "name": "before", "binding:host_id": "n1"}
	}
	_, made := d.ask(admin, http.MethodPost, "/ports", object{"ports": items})
	w := &meddler{ResponseRecorder: httptest.NewRecorder()}
	w.meddle = func() {
		for i, p := range made["ports"].(list) {
			if id := text(p.(object), "id"); i%2 == 0 {
				d.change("port", id, object{"name": "after"})
			} else if status, answer := d.ask(admin, http.MethodDelete, "/ports/"+id, nil); status != http.StatusNoContent {
				t.Errorf("deleting a port: %d %v", status, answer)
			}
		}
	}
	d.Handle(w, httptest.NewRequest(http.MethodGet, "/v2.0/ports?name=before&limit=1000", nil), admin)
	var answer struct {
		Ports []struct{ Name string }
		Links []struct{ Rel string } `json:"ports_links"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("reading the list: %v", err)
	}
	for _, p := range answer.Ports {
		if p.Name != "before" {
			t.Fatalf("the list has a port %q", p.Name)
		}
	}
	if len(answer.Ports) != many || len(answer.Links) != 1 || w.parts < 2 {
		t.Errorf("got %d ports and %d links in %d parts, want %d, 1 and more than 1", len(answer.Ports), len(answer.Links), w.parts, many)
	}
}

// meddler calls meddle when the first part of an answer arrives.
type meddler struct {
	*httptest.ResponseRecorder
	meddle func()
	parts  int
}

func (m *meddler) Write(b []byte) (int, error) {
	if m.parts++; m.parts == 1 {
		m.meddle()
	}
	return m.ResponseRecorder.Write(b)
}

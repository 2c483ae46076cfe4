// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package dial_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

// Rules may name a service that was added, those put in front, too; a name that is
// neither is told with all that may be written.
func TestRulesForAServiceThatWasAdded(t *testing.T) {
	const rule = "compute POST /v2.1/servers"
	if _, err := (&dial.Set{}).Add(rule + ": 503"); err == nil {
		t.Error("a service that was not added may be named")
	}
	s, err := dial.Parse([]byte("calls: [{on: "+rule+", fault: 409}]\nworkers: {compute: 2}"), "compute")
	if err != nil {
		t.Fatal(err)
	}
	if s, err = s.Add(rule+": [lost]", "image"); err != nil {
		t.Fatal(err)
	}
	if s, err = s.Patch([]byte("calls: [{on: image GET /v2/images, fault: 503}]"), "image"); err != nil {
		t.Fatal(err)
	}
	p := dial.NewPanel(1)
	p.Set(s)
	if got, want := run(p, dial.Call{Service: "compute", Method: "POST", Path: "/v2.1/servers"}, 2), "lost 409"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if s.Workers["compute"] != 2 {
		t.Errorf("workers are %v", s.Workers)
	}
	_, err = s.Add("compte GET /v2.1/servers: 503")
	if err == nil || !strings.Contains(err.Error(), `"compte" is no service: write identity, network, load-balancer, compute, image or *`) {
		t.Errorf("a misspelled service: %v", err)
	}
}

func TestFaultOfAServiceThatWasAdded(t *testing.T) {
	c := dial.Call{Service: "compute", Method: "POST", Path: "/v2.1/servers"}
	got := dial.Fault{Status: http.StatusConflict, Message: "no {kind}"}.Answer(c, dial.Facts{})
	if want := `{"error":{"code":409,"message":"no server","title":"Conflict"}}`; got.Status != http.StatusConflict || string(got.Body) != want {
		t.Errorf("got %d %s, want 409 %s", got.Status, got.Body, want)
	}
}

// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestOperatorsWords: a person who must act in Octavia gets commands with the IDs. The statement for
// Octavia's database is the one that the document explains.
func TestOperatorsWords(t *testing.T) {
	spent := &Result{Report: Report{Spent: true, Tried: []string{"pool p: tried"}}, Found: Found{Trees: []sdn.LoadBalancer{{ID: "lb-4"}, {ID: "lb-6"}}}}
	reason, message := Unready(&v1.KuryrLoadBalancer{}, spent)
	const want = "openstack loadbalancer status show lb-4; openstack loadbalancer status show lb-6"
	if reason != v1.ReasonLoadBalancerInError || !strings.Contains(message, want) || !strings.HasSuffix(message, "pool p: tried") {
		t.Errorf("after all repairs: %s, %q, want it to have %q, and what was tried", reason, message, want)
	}
	doc, err := os.ReadFile("../../../docs/services.md")
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(strings.Fields(string(doc)), " "); !strings.Contains(text, fmt.Sprintf(setError, "ID")+";") {
		t.Errorf("docs/services.md lacks %q", fmt.Sprintf(setError, "ID"))
	}
	now := metav1.Now()
	klb := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}
	busy := Waiting{ID: strings.Repeat("i", 36), Since: now.Time, Stuck: true, Release: now.Add(5 * time.Minute)}
	const most = 1024 - 64 // an Event's note, and the text before it
	if _, text := Unready(klb, &Result{Waiting: busy}); len(text) > most || !strings.Contains(text, fmt.Sprintf(setError, busy.ID)) {
		t.Errorf("a busy load balancer: %d characters %q, want all of them in an Event, with the statement", len(text), text)
	}
}

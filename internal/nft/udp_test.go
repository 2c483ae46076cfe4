// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nft_test

import (
	"testing"

	"github.com/kuryr-go/kuryr/internal/nft"
	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// A UDP client that never ceases to send follows the tables all the same.
func TestUDPFollows(t *testing.T) {
	s := newSite(t)
	tables := new(nft.Tables)
	c, err := s.client.dial(t, patient, "udp", node4, 30080)
	if err != nil {
		t.Fatal(err)
	}
	if got := exchange(c, brief); got != "none" {
		t.Fatalf("before: %q", got)
	}
	for _, step := range []struct {
		vip, want                string
		added, removed, newTable int
	}{
		{vip4, vip4 + " sees " + inner4, 2, 0, 1},
		{vip4b, vip4b + " sees " + inner4, 2, 2, 0},
		{"", "none", 0, 2, 0},
		{vip4, vip4 + " sees " + inner4, 2, 0, 1},
	} {
		want := nodeport.Table{}
		if step.vip != "" {
			add(want, any4, 30080, step.vip)
		}
		ensure(t, tables, want, step.added, step.removed, step.newTable)
		patience := patient
		if step.want == "none" {
			patience = brief
		}
		if got := exchange(c, patience); got != step.want {
			t.Errorf("leading to %q: %q, want %q", step.vip, got, step.want)
		}
	}
}

// Where the kernel ends no UDP connections the tables are kept all the same, and
// the connections are ended when it does.
func TestUDPIsNotForgotten(t *testing.T) {
	s := newSite(t)
	tables := new(nft.Tables)
	want := nodeport.Table{}
	add(want, any4, 30080, vip4)
	ensure(t, tables, want, 2, 0, 1)
	c, err := s.client.dial(t, patient, "udp", node4, 30080)
	if err != nil {
		t.Fatal(err)
	}
	if got := exchange(c, patient); got != vip4+" sees "+inner4 {
		t.Fatalf("before: %q", got)
	}
	again := nft.NeverForgets(tables)
	add(want, any4, 30080, vip4b)
	for _, added := range []int{2, 0} {
		if got, err := tables.Ensure(t.Context(), want); err != nil || got.Unforgotten == nil || got.Added != added || got.Failed[0] {
			t.Errorf("Ensure() = %+v, %v; want it done, and told that connections go on", got, err)
		}
	}
	expect(t, s.client, "new", "tcp", node4, 30080, vip4b+" sees "+inner4)
	again()
	ensure(t, tables, want, 0, 0, 0)
	if got := exchange(c, patient); got != vip4b+" sees "+inner4 {
		t.Errorf("when they are ended: %q", got)
	}

	again = nft.NeverForgets(tables)
	for _, removed := range []int{2, 0} {
		if got, err := tables.Ensure(t.Context(), nil); err != nil || got.Unforgotten == nil || got.Removed != removed {
			t.Errorf("Ensure(nil) = %+v, %v; want the table gone, and told that connections go on", got, err)
		}
	}
	again()
	ensure(t, tables, nil, 0, 0, 0)
	if got := exchange(c, brief); got != "none" {
		t.Errorf("when the last is ended: %q", got)
	}
}

// Connections that were ended are not ended again with each change: what was translated
// so once may be right by then.
func TestUDPIsForgottenOnce(t *testing.T) {
	newSite(t)
	tables := new(nft.Tables)
	counts := nft.Forgets(tables)
	last := 0
	for i, port := range []uint16{30080, 30081, 30082} {
		want := nodeport.Table{}
		add(want, any4, port, vip4)
		if _, err := tables.Ensure(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if len(*counts) != i+1 {
			t.Fatalf("after change %d connections were ended %d times", i+1, len(*counts))
		}
		if i == 1 {
			last = (*counts)[i]
		}
	}
	if _, err := tables.Ensure(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := (*counts)[2]; got != last {
		t.Errorf("a change ended connections of %d translations, want %d as the like one before: %v", got, last, *counts)
	}
}

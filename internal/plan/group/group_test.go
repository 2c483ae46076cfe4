// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package group_test

import (
	"fmt"
	"slices"
	"testing"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/group"
)

func TestMemberGroupsAreReadAsWritten(t *testing.T) {
	port := &v1.KuryrPort{}
	for _, groups := range [][]string{nil, {"a"}, {"a", "b"}, {}} {
		group.SetMemberGroups(port, groups)
		if got := group.MemberGroups(port); !slices.Equal(got, groups) {
			t.Errorf("got %v, want %v", got, groups)
		}
	}
	if _, there := port.Annotations[v1.MemberGroupsAnnotation]; there {
		t.Error("the annotation is there although the port has no such groups")
	}
}

func TestJoin(t *testing.T) {
	full := make([]string, 63)
	for i := range full {
		full[i] = fmt.Sprintf("g%02d", i)
	}
	for _, c := range []struct{ own, more, all, given []string }{
		{nil, nil, nil, nil},
		{[]string{"b"}, []string{"a"}, []string{"a", "b"}, []string{"a"}},
		{[]string{"a", "b"}, []string{"b", "c"}, []string{"a", "b", "c"}, []string{"c"}}, // the pod's stay the pod's
		{full, []string{"x", "y"}, append(slices.Clone(full), "x"), []string{"x"}},       // as many as a port holds
		{append(slices.Clone(full), "x", "y"), []string{"z"}, append(slices.Clone(full), "x", "y"), nil},
	} {
		more := slices.Clone(c.more)
		all, given := group.Join(c.own, c.more)
		if !slices.Equal(all, c.all) || !slices.Equal(given, c.given) {
			t.Errorf("Join(%v, %v) = %v, %v; want %v, %v", c.own, c.more, all, given, c.all, c.given)
		}
		if !slices.Equal(c.more, more) {
			t.Errorf("Join has changed its argument to %v", c.more)
		}
	}
}

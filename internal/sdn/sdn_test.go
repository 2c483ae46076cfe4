// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

func FuzzOwner(f *testing.F) {
	for _, s := range []string{"kuryrportpool/n1-0123456789", "service/default/web", "", "/", "a//b", "a/b/c/d", "one"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o, err := sdn.ParseOwner(s)
		if err != nil {
			if o != (sdn.Owner{}) {
				t.Errorf("ParseOwner(%q) = %+v with an error", s, o)
			}
			return
		}
		if got := o.String(); got != s {
			t.Errorf("ParseOwner(%q).String() = %q", s, got)
		}
	})
}

func TestParseOwner(t *testing.T) {
	want := sdn.Owner{Kind: "service", Namespace: "default", Name: "web"}
	if got, err := sdn.ParseOwner("service/default/web"); err != nil || got != want {
		t.Errorf("ParseOwner = %+v, %v; want %+v", got, err, want)
	}
	for _, s := range []string{"", "web", "service//web", "/web", "service/", "a/b/c/d"} {
		if got, err := sdn.ParseOwner(s); err == nil {
			t.Errorf("ParseOwner(%q) = %+v, want an error", s, got)
		}
	}
}

func TestBusyErrorIsUnavailableAndItsCause(t *testing.T) {
	err := fmt.Errorf("creating: %w", &sdn.BusyError{After: 7 * time.Second, Err: sdn.ErrQuota})
	if !errors.Is(err, sdn.ErrUnavailable) || !errors.Is(err, sdn.ErrQuota) {
		t.Errorf("%v is not both ErrUnavailable and its cause", err)
	}
	if after, ok := sdn.RetryAfter(err); !ok || after != 7*time.Second {
		t.Errorf("RetryAfter = %s, %t; want 7s", after, ok)
	}
	if after, ok := sdn.RetryAfter(sdn.ErrUnavailable); ok || after != 0 {
		t.Errorf("RetryAfter of a plain error = %s, %t", after, ok)
	}
}

// What a list lacks of a project is found by any spelling of the project's ID.
func TestErrorIn(t *testing.T) {
	err := fmt.Errorf("listing: %w", &sdn.PartialError{Lacks: map[string]error{"4be1f0c7d3a94f0f8f0d4e5e1b0a7c11": sdn.ErrLogin}})
	for project, want := range map[string]error{
		"4be1f0c7d3a94f0f8f0d4e5e1b0a7c11": sdn.ErrLogin, "4BE1F0C7-D3A9-4F0F-8F0D-4E5E1B0A7C11": sdn.ErrLogin, "": nil, "other": nil,
	} {
		if got := sdn.ErrorIn(project, err); !errors.Is(got, want) || (got == nil) != (want == nil) {
			t.Errorf("ErrorIn(%q) = %v, want %v", project, got, want)
		}
	}
	if got := sdn.ErrorIn("other", sdn.ErrUnavailable); !errors.Is(got, sdn.ErrUnavailable) || sdn.Partial(got) != nil {
		t.Errorf("ErrorIn of an error without a list: %v", got)
	}
}

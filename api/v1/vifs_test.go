// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seed is the annotation as the port CRD design has it.
const seed = `{"eth0": {"versioned_object.data": {"selfLink": "/apis/openstack.org/v1/kuryrports/18f968a5-c420-4318-92d7-941eb5f9e60e"}}, ` +
	`"versioned_object.name": "KuryrPortCRD", "versioned_object.version": "1.0"}`

func TestAnnotationIsAsDesigned(t *testing.T) {
	t.Parallel()
	ports := map[string]string{"eth0": "18f968a5-c420-4318-92d7-941eb5f9e60e"}
	if got := FormatVIFs(ports); got != seed {
		t.Errorf("formatVIFs =\n%s\nwant\n%s", got, seed)
	}
	got, err := ParseVIFs(seed)
	if diff := cmp.Diff(ports, got); diff != "" || err != nil {
		t.Errorf("parseVIFs: %v (-want +got):\n%s", err, diff)
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `null`, `[]`, `{}`, `nonsense`, `{"versioned_object.name": "KuryrPortCRD"}`,
		`{"versioned_object.name": "VIFVlanNested", "versioned_object.version": "1.0"}`,
		`{"versioned_object.name": "KuryrPortCRD", "versioned_object.version": "2.0"}`,
		seed + seed, seed + "x",
		`{"eth0": {"versioned_object.data": {"selfLink": "/api/v1/secrets/x"}}, "versioned_object.name": "KuryrPortCRD", "versioned_object.version": "1.0"}`,
		`{"eth0": {"versioned_object.data": {"selfLink": "/apis/openstack.org/v1/kuryrports/../x"}}, "versioned_object.name": "KuryrPortCRD", "versioned_object.version": "1.0"}`,
		`{"eth0": {"versioned_object.data": {"selfLink": "/apis/openstack.org/v1/kuryrports/"}}, "versioned_object.name": "KuryrPortCRD", "versioned_object.version": "1.0"}`,
		`{"eth0": {"versioned_object.data": {}}, "versioned_object.name": "KuryrPortCRD", "versioned_object.version": "1.0"}`,
		`{"eth0": {"active": true}, "versioned_object.name": "KuryrPortCRD", "versioned_object.version": "1.0"}`,
		`{"eth0": 1, "versioned_object.name": "KuryrPortCRD", "versioned_object.version": "1.0"}`,
	} {
		if got, err := ParseVIFs(text); err == nil {
			t.Errorf("parseVIFs(%q) = %v, want an error", text, got)
		}
	}
}

// FuzzParseVIFs: what is taken is what formatVIFs would have written, but for
// spaces and order.
func FuzzParseVIFs(f *testing.F) {
	f.Add(seed)
	f.Add(`{"versioned_object.version":"1.0","versioned_object.name":"KuryrPortCRD"}`)
	f.Add(`{"a": {"versioned_object.data": null}}`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseVIFs(text)
		if err != nil {
			return
		}
		again, err := ParseVIFs(FormatVIFs(got))
		if diff := cmp.Diff(got, again); diff != "" || err != nil {
			t.Errorf("parseVIFs(formatVIFs(%v)): %v\n%s", got, err, diff)
		}
	})
}

// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/kuryr-go/kuryr/internal/cni"
)

func TestParseConfig(t *testing.T) {
	c, err := cni.ParseConfig([]byte(`{"name":"n","type":"kuryr-cni","capabilities":{"portMappings":true},"runtimeConfig":{"x":1}}`))
	if err != nil || c.CNIVersion != "0.1.0" || c.Socket != cni.SocketPath || c.Timeout != 75*time.Second {
		t.Errorf("ParseConfig() = %+v, %v: want the defaults", c, err)
	}
	for text, want := range map[string]time.Duration{`"2m"`: 2 * time.Minute, `90`: 90 * time.Second, `1.5`: 1500 * time.Millisecond, `null`: 75 * time.Second} {
		if c, err := cni.ParseConfig(fmt.Appendf(nil, `{"timeout":%s}`, text)); err != nil || c.Timeout != want {
			t.Errorf("timeout %s: %v, %v, want %v", text, c.Timeout, err, want)
		}
	}
	for text, code := range map[string]uint{
		``: cni.CodeDecoding, `[]`: cni.CodeDecoding, `{"dns":1}`: cni.CodeDecoding,
		`{"socket":"run/cni.sock"}`: cni.CodeInvalidConfig, `{"timeout":"soon"}`: cni.CodeInvalidConfig, `{"timeout":-1}`: cni.CodeInvalidConfig,
		`{"timeout":0}`: cni.CodeInvalidConfig, `{"timeout":1e300}`: cni.CodeInvalidConfig, `{"timeout":"2h"}`: cni.CodeInvalidConfig, `{"timeout":[]}`: cni.CodeInvalidConfig,
	} {
		_, err := cni.ParseConfig([]byte(text))
		wantCode(t, "ParseConfig("+text+")", err, code)
	}
}

// A result of every version comes back as prevResult, and its addresses are found.
func TestResultOfEveryVersion(t *testing.T) {
	for _, v := range version.All.SupportedVersions() {
		out, err := cni.Convert(sample(), v)
		if err != nil {
			t.Fatalf("Convert(%s) = %v", v, err)
		}
		c, err := cni.ParseConfig(fmt.Appendf(nil, `{"cniVersion":%q,"prevResult":%s}`, v, asJSON(t, out)))
		if err != nil {
			t.Fatal(err)
		}
		prev, err := c.PrevAddresses()
		if err != nil || fmt.Sprint(prev) != "[10.0.0.15/16 fd00::15/64]" {
			t.Errorf("version %s: PrevAddresses() = %v, %v", v, prev, err)
		}
	}
}

// The form of 0.1.0, as the MidoNet document has it.
func TestResultOfFirstVersion(t *testing.T) {
	out, err := cni.Convert(sample(), "0.1.0")
	want := `{"cniVersion":"0.1.0","ip4":{"ip":"10.0.0.15/16","gateway":"10.0.0.1","routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}]},` +
		`"ip6":{"ip":"fd00::15/64"},"dns":{"nameservers":["10.0.0.2"]}}`
	if got := asJSON(t, out); err != nil || got != want {
		t.Errorf("Convert(0.1.0) = %s, %v\nwant %s", got, err, want)
	}
	_, err = cni.Convert(sample(), "0.9.9")
	wantCode(t, "Convert(0.9.9)", err, cni.CodeIncompatibleVersion)
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"0.4.0","name":"n","timeout":"75s","prevResult":{"ips":[{"version":"4","address":"10.0.0.1/8"}]}}`))
	f.Add([]byte(`{"cniVersion":"1.1.0","cni.dev/valid-attachments":[{"containerID":"a","ifname":"b"}],"prevResult":{"interfaces":[null]}}`))
	f.Add([]byte(`{"cniVersion":"0.1.0","prevResult":{"ip4":{"ip":"10.0.0.1/8","routes":[{"dst":"0.0.0.0/0"}]},"dns":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := cni.ParseConfig(data)
		if err == nil {
			if c.Timeout <= 0 || c.Socket == "" {
				t.Errorf("ParseConfig() = %+v", c)
			}
			_, err = c.PrevAddresses()
			_, err2 := c.ValidAttachments()
			err = errors.Join(err, err2)
		}
		var e *types.Error
		if err != nil && (!errors.As(err, &e) || e.Code == 0) {
			t.Errorf("error without a code: %v", err)
		}
	})
}

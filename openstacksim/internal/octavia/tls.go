// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"slices"
	"strings"
)

// ciphers are Octavia's default ciphers.
const ciphers = "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:DHE-RSA-AES256-GCM-SHA384:" +
	"DHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-SHA256:" +
	"DHE-RSA-AES128-SHA256:ECDHE-RSA-AES256-SHA384:ECDHE-RSA-AES128-SHA256"

func (l *listener) secure() {
	if l.TLSCiphers == nil {
		c := ciphers
		l.TLSCiphers = &c
	}
	if l.TLSVersions == nil {
		l.TLSVersions = []string{"TLSv1.2", "TLSv1.3"}
	}
	if l.ALPNProtocols == nil {
		l.ALPNProtocols = []string{"h2", "http/1.1", "http/1.0"}
	}
}

func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}

// checkTLS checks ciphers, references to secrets and, if TLS is enabled, its versions.
func (c *call) checkTLS(in values, refs, authorities []string, enabled bool) *fault {
	if text := in.text("tls_ciphers"); strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+!:@=_.") != "" {
		return invalid("Invalid characters in cipher string. Only alphanumeric, -, +, !, :, @, =, _, and . are allowed.")
	}
	if bad := c.secrets(refs); bad != nil {
		return bad
	}
	if bad := c.secrets(authorities); bad != nil {
		return bad
	}
	if !enabled {
		return nil
	}
	return versionsFit(in)
}

func versionsFit(in values) *fault {
	if versions, listed := in["tls_versions"].([]any); listed {
		if len(versions) == 0 {
			return invalid("Empty TLS version list. Either specify at least one TLS version or remove this parameter to use the default.")
		}
		wrong := slices.DeleteFunc(in.texts("tls_versions"), func(v string) bool {
			return slices.Contains([]string{"SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"}, v)
		})
		if len(wrong) > 0 {
			return invalid("Invalid TLS versions: %s", strings.Join(wrong, ", "))
		}
	}
	if protocols, listed := in["alpn_protocols"].([]any); listed && len(protocols) == 0 {
		return invalid("Empty ALPN protocol list. Either specify at least one ALPN protocol or remove this parameter to use the default.")
	}
	return nil
}

// secrets refuses references that cannot be read. Without Barbican, as in the test bed, none can
// be read.
func (c *call) secrets(refs []string) *fault {
	wrong := []any{}
	for _, ref := range refs {
		if c.o.Secret == nil || !c.o.Secret(ref) {
			wrong = append(wrong, ref)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return refuse(400, "Could not retrieve certificate: %s", repr(wrong))
}

var (
	plainHeaders = []string{"X-Forwarded-For", "X-Forwarded-Port", "X-Forwarded-Proto"}
	tlsHeaders   = []string{
		"X-SSL-Client-Verify", "X-SSL-Client-Has-Cert", "X-SSL-Client-DN", "X-SSL-Client-CN", "X-SSL-Issuer",
		"X-SSL-Client-SHA1", "X-SSL-Client-Not-Before", "X-SSL-Client-Not-After",
	}
)

func headersFit(headers map[string]any, protocol string) *fault {
	if protocol != "HTTP" && protocol != "TERMINATED_HTTPS" {
		return notOption("insert-headers", fmt.Sprintf("a %s protocol listener.", protocol))
	}
	var names, ofTLS []any
	unknown := false
	for _, name := range sorted(keysOf(headers)) {
		names = append(names, name)
		if slices.Contains(tlsHeaders, name) {
			ofTLS = append(ofTLS, name)
		} else if !slices.Contains(plainHeaders, name) {
			unknown = true
		}
	}
	switch {
	case unknown:
		return notOption("dict_keys("+repr(names)+")", "insert_headers")
	case protocol != "TERMINATED_HTTPS" && len(ofTLS) > 0:
		return notOption(repr(ofTLS), protocol+" protocol listener.")
	}
	return nil
}

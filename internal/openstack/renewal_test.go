// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// movable is a simulator behind a proxy that may replace its certificate, change the catalogue and
// refuse a service.
type movable struct {
	*openstacksim.Cloud
	*httptest.Server
	dir     string
	cert    atomic.Pointer[tls.Certificate]
	clients atomic.Pointer[x509.CertPool]                                 // of client certificates; nil: none is asked for
	answer  atomic.Pointer[func(http.ResponseWriter, *http.Request) bool] // may answer itself
	catalog atomic.Pointer[strings.Replacer]                              // of the answer to a login
}

func newMovable(t *testing.T) *movable {
	t.Helper()
	m := &movable{Cloud: openstacksim.Start(t), dir: t.TempDir()}
	to, err := url.Parse(m.Cloud.URL())
	must(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error {
			text, err := io.ReadAll(r.Body)
			text = bytes.ReplaceAll(text, []byte(m.Cloud.URL()), []byte(m.Server.URL))
			if change := m.catalog.Load(); change != nil && strings.HasSuffix(r.Request.URL.Path, "/auth/tokens") {
				text = []byte(change.Replace(string(text)))
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
			r.Header.Del("Content-Length")
			return err
		},
	}
	m.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := m.answer.Load(); answer == nil || !(*answer)(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	m.Config.ErrorLog = log.New(io.Discard, "", 0)
	m.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := &tls.Config{Certificates: []tls.Certificate{*m.cert.Load()}}
		if c.ClientCAs = m.clients.Load(); c.ClientCAs != nil {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return c, nil
	}}
	text, cert := newAuthority(t)
	m.cert.Store(cert)
	m.write(t, "ca.pem", text)
	m.StartTLS()
	t.Cleanup(m.Server.Close)
	m.clouds(t, "", "")
	return m
}

// newAuthority returns a certificate that signs itself, for a server and a client on 127.0.0.1.
func newAuthority(t *testing.T) (text []byte, cert *tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	must(t, err)
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: serial.String()}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (m *movable) write(t *testing.T, name string, text []byte) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(m.dir, name), text, 0o600))
}

// clouds writes clouds.yaml with a replaced text. All entries have the proxy's address and its authority.
func (m *movable) clouds(t *testing.T, from, to string) {
	t.Helper()
	text := strings.NewReplacer(m.Cloud.URL(), m.Server.URL, "    auth:", "    cacert: "+m.dir+"/ca.pem\n    auth:").Replace(string(m.Clouds()))
	m.write(t, "clouds.yaml", []byte(strings.ReplaceAll(text, from, to)))
}

func (m *movable) backend(t *testing.T) *openstack.Backend {
	t.Helper()
	b, err := openstack.New(t.Context(), openstack.Config{
		ClusterID: "one", Cloud: "kuryr", CloudsFile: filepath.Join(m.dir, "clouds.yaml"), RequestsPerSecond: 1000, RequestTimeout: 20 * time.Second,
	})
	must(t, err)
	return b
}

// serve replaces the server's certificate. No connection outlives that.
func (m *movable) serve(cert *tls.Certificate) {
	m.cert.Store(cert)
	m.CloseClientConnections()
}

func (m *movable) logins() int { return m.Count("POST", "auth/tokens") }

func listPorts(t *testing.T, b *openstack.Backend) error {
	t.Helper()
	_, err := b.ListPorts(t.Context())
	return err
}

// refuseNeutron lets the proxy answer Neutron's requests itself, below path.
func (m *movable) refuseNeutron(path string, status int, text string) {
	answer := func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, path) {
			return false
		}
		if status == 0 {
			panic(http.ErrAbortHandler) // closes the connection
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
		return true
	}
	m.answer.Store(&answer)
}

// TestRotatedAuthority: the authority of the cloud's certificate, also of Keystone's, is replaced
// before or after the file of cacert has the new one, beside the old one or in its place.
func TestRotatedAuthority(t *testing.T) {
	for _, test := range []struct {
		name        string
		keep, early bool // the old authority; the file is changed before the certificate
		tenant      bool // the session of an entry for a project
	}{{"beside the old one", true, true, false}, {"in its place", false, true, false}, {"after the certificate", false, false, false}, {"a tenant's", false, false, true}} {
		t.Run(test.name, func(t *testing.T) {
			m := newMovable(t)
			b := m.backend(t)
			if test.tenant {
				project := m.AddTenant("red")
				m.clouds(t, "", "")
				b = b.As("red", project)
			}
			if err := listPorts(t, b); err != nil {
				t.Fatalf("ListPorts before: %v", err)
			}
			text, cert := newAuthority(t)
			if test.keep {
				old, err := os.ReadFile(filepath.Join(m.dir, "ca.pem"))
				must(t, err)
				text = append(old, text...)
			}
			if test.early {
				m.write(t, "ca.pem", text)
			}
			m.serve(cert)
			if !test.early {
				for range 3 {
					if err := listPorts(t, b); !errors.Is(err, sdn.ErrUnavailable) || !errors.As(err, new(x509.UnknownAuthorityError)) || !strings.Contains(err.Error(), "cacert") {
						t.Errorf("ListPorts before the file has the new authority: %v, want ErrUnavailable that says so and names cacert", err)
					}
				}
				m.write(t, "ca.pem", text)
			}
			until(t, "ListPorts with the new authority", func() error { return listPorts(t, b) })
			want := 2
			if test.tenant {
				want++ // Kuryr's own credential, whose region it has to be of
			}
			if got := m.logins(); got != want {
				t.Errorf("%d logins, want %d", got, want)
			}
		})
	}
}

// until waits for a success. A changed file is read once a second at most.
func until(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	err := f()
	for ; err != nil && time.Now().Before(deadline); err = f() {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// TestRotatedClientCertificate: cert and key are read again when the server refuses the old ones.
func TestRotatedClientCertificate(t *testing.T) {
	m := newMovable(t)
	accepted := func(text []byte, cert *tls.Certificate) {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(text)
		key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
		must(t, err)
		m.write(t, "cert.pem", text)
		m.write(t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
		m.clients.Store(pool)
	}
	accepted(newAuthority(t))
	m.clouds(t, "    cacert:", "    cert: "+m.dir+"/cert.pem\n    key: "+m.dir+"/key.pem\n    cacert:")
	b := m.backend(t)
	if err := listPorts(t, b); err != nil {
		t.Fatalf("ListPorts before: %v", err)
	}
	accepted(newAuthority(t))
	m.CloseClientConnections()
	until(t, "ListPorts with the new client certificate", func() error { return listPorts(t, b) })
}

// TestMovedEndpoint: Neutron is elsewhere, according to the catalogue or to clouds.yaml. What
// answers at the old place is nothing, a proxy or another server. A token of before is still good.
func TestMovedEndpoint(t *testing.T) {
	const old, page = "/networking", "<html><body>not here</body></html>"
	for _, test := range []struct {
		name   string
		status int // 0: the connection is closed
		text   string
	}{
		{"closed", 0, ""}, {"gone", 410, page}, {"not found", 404, page}, {"a proxy's JSON", 404, `{"message": "no Route matched"}`},
		{"no server behind the proxy", 503, page}, {"redirected", 301, ""}, {"TLS only", 400, "Client sent an HTTP request to an HTTPS server.\n"},
		{"another server", 200, page},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMovable(t)
			b := m.backend(t)
			if err := listPorts(t, b); err != nil {
				t.Fatalf("ListPorts before: %v", err)
			}
			m.refuseNeutron(old, test.status, test.text)
			other := httptest.NewServer(http.StripPrefix("/elsewhere", m.Cloud)) // another port
			t.Cleanup(other.Close)
			m.catalog.Store(strings.NewReplacer(m.Server.URL+old, other.URL+"/elsewhere"+old))
			if err := listPorts(t, b); err != nil || m.logins() != 2 {
				t.Errorf("ListPorts: %v, %d logins; want none but the second", err, m.logins())
			}
		})
	}
}

// TestPortThatRefuses: nothing listens at the endpoint any more, and a creating request, which is
// never repeated, meets that first.
func TestPortThatRefuses(t *testing.T) {
	m := newMovable(t)
	gone := httptest.NewServer(m.Cloud)
	was := strings.NewReplacer(m.Server.URL+"/networking", gone.URL+"/networking")
	m.catalog.Store(was)
	b := m.backend(t)
	if err := listPorts(t, b); err != nil {
		t.Fatalf("ListPorts before: %v", err)
	}
	gone.Close()
	m.catalog.Store(strings.NewReplacer())
	spec := sdn.NetworkSpec{Name: "uid/team"}
	if _, err := b.CreateNetwork(t.Context(), tenantOwner, spec); !errors.Is(err, sdn.ErrUnavailable) {
		t.Errorf("CreateNetwork at the old endpoint: %v, want ErrUnavailable", err)
	}
	until(t, "CreateNetwork at the new endpoint", func() error { // a connection that has idled is found closed first
		_, err := b.CreateNetwork(t.Context(), tenantOwner, spec)
		return err
	})
	if m.logins() != 2 {
		t.Errorf("%d logins, want 2", m.logins())
	}
}

// TestChangedInterfaceOrRegion: the entry of clouds.yaml names another interface or region, as the
// endpoint of the first no longer serves.
func TestChangedInterfaceOrRegion(t *testing.T) {
	for from, to := range map[string]string{"region_name: RegionOne": "region_name: RegionTwo", "    auth:": "    interface: internal\n    auth:"} {
		m := newMovable(t)
		old := httptest.NewServer(m.Cloud)
		m.catalog.Store(strings.NewReplacer(
			`"endpoints":[`, `"endpoints":[`+
				`{"id":"1","interface":"public","region":"RegionOne","region_id":"RegionOne","url":"`+old.URL+`/networking"},`+
				`{"id":"2","interface":"internal","region":"RegionOne","region_id":"RegionOne","url":"`+m.Server.URL+`/networking"},`+
				`{"id":"3","interface":"public","region":"RegionTwo","region_id":"RegionTwo","url":"`+m.Server.URL+`/networking"},`))
		b := m.backend(t)
		if err := listPorts(t, b); err != nil {
			t.Fatalf("ListPorts before: %v", err)
		}
		old.Close()
		if err := listPorts(t, b); !errors.Is(err, sdn.ErrUnavailable) {
			t.Errorf("ListPorts at the closed endpoint: %v, want ErrUnavailable", err)
		}
		m.clouds(t, from, to)
		until(t, "ListPorts with "+to, func() error { return listPorts(t, b) })
	}
}

// TestOutageIsNoStorm: while Neutron is away, a session is renewed once, and then after a pause. An
// answer of Neutron itself renews none, whatever it says.
func TestOutageIsNoStorm(t *testing.T) {
	m := newMovable(t)
	b := m.backend(t)
	must(t, listPorts(t, b))
	for _, answer := range []struct {
		status int
		text   string
	}{
		{500, `{"NeutronError": {"type": "DBError", "message": "m", "detail": ""}}`}, {429, "slow down"},
		{409, `{"NeutronError": {"type": "OverQuota", "message": "m", "detail": ""}}`}, {404, `{"NeutronError": {"type": "PortNotFound", "message": "m", "detail": ""}}`},
	} {
		m.refuseNeutron("/networking", answer.status, answer.text)
		if err := listPorts(t, b); err == nil || m.logins() != 1 {
			t.Errorf("ListPorts that Neutron answers with %d: %v, %d logins; want no second", answer.status, err, m.logins())
		}
	}
	for _, status := range []int{503, 0} {
		m.refuseNeutron("/networking", status, "")
		for range 20 {
			if err := listPorts(t, b); !errors.Is(err, sdn.ErrUnavailable) {
				t.Errorf("ListPorts without Neutron: %v, want ErrUnavailable", err)
			}
		}
	}
	m.answer.Store(nil)
	until(t, "ListPorts afterwards", func() error { return listPorts(t, b) })
	if m.logins() != 2 {
		t.Errorf("%d logins in an outage; want 2", m.logins())
	}
}

// TestOutageWithoutKeystone: a renewal that fails takes nothing away from the session.
func TestOutageWithoutKeystone(t *testing.T) {
	m := newMovable(t)
	b := m.backend(t)
	must(t, listPorts(t, b))
	m.refuseNeutron("/", 503, "")
	if err := listPorts(t, b); !errors.Is(err, sdn.ErrUnavailable) {
		t.Errorf("ListPorts without a cloud: %v, want ErrUnavailable", err)
	}
	m.answer.Store(nil)
	if err := listPorts(t, b); err != nil || m.logins() != 1 {
		t.Errorf("ListPorts with the old token: %v, %d logins; want no second", err, m.logins())
	}
}

// TestOutageWithBrokenCredential: Neutron may have moved, and clouds.yaml cannot be read. The token of
// before serves as long as it is valid.
func TestOutageWithBrokenCredential(t *testing.T) {
	m := newMovable(t)
	b := m.backend(t)
	must(t, listPorts(t, b))
	m.write(t, "clouds.yaml", []byte("clouds: {kuryr: {auth: {password: *s3cr3t}}}"))
	m.refuseNeutron("/networking", 503, "")
	for range 2 {
		if err := listPorts(t, b); !errors.Is(err, sdn.ErrUnavailable) || errors.Is(err, sdn.ErrLogin) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("ListPorts without Neutron: %v; want ErrUnavailable, without the password", err)
		}
	}
	m.answer.Store(nil)
	if err := listPorts(t, b); err != nil {
		t.Errorf("ListPorts with the old token: %v", err)
	}
}

// TestTenantOfAnotherRegion: the entry of a project gets another region. There the project has the same
// ID and none of its ports, so nothing may be taken for deleted. Another interface is the same Neutron.
func TestTenantOfAnotherRegion(t *testing.T) {
	for _, test := range []struct {
		name, line string // added to the entries of clouds.yaml but Kuryr's own
		refused    bool
	}{
		{"the same region", "", false},
		{"another interface", "interface: internal", false},
		{"another region", "region_name: RegionTwo", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMovable(t)
			other, third := httptest.NewServer(m.Cloud), httptest.NewServer(m.Cloud)
			t.Cleanup(other.Close)
			t.Cleanup(third.Close)
			m.catalog.Store(strings.NewReplacer(`"endpoints":[`, `"endpoints":[`+
				`{"id":"1","interface":"public","region":"RegionOne","region_id":"RegionOne","url":"`+m.Server.URL+`/networking"},`+
				`{"id":"2","interface":"internal","region":"RegionOne","region_id":"RegionOne","url":"`+other.URL+`/networking"},`+
				`{"id":"3","interface":"public","region":"RegionTwo","region_id":"RegionTwo","url":"`+third.URL+`/networking/"},`))
			project := m.AddTenant("red")
			m.clouds(t, "", "")
			b := m.backend(t)
			if test.line != "" {
				file := filepath.Join(m.dir, "clouds.yaml")
				text, err := os.ReadFile(file)
				must(t, err)
				head, entry, found := strings.Cut(string(text), "\n  red:\n")
				if !found {
					t.Fatalf("no entry red in %s", text)
				}
				if strings.HasPrefix(test.line, "region_name") {
					entry = strings.Replace(entry, "    region_name: RegionOne\n", "", 1)
				}
				m.write(t, "clouds.yaml", []byte(head+"\n  red:\n    "+test.line+"\n"+entry))
			}
			err := listPorts(t, b.As("red", project))
			if is := errors.Is(err, sdn.ErrForbidden); is != test.refused || !is && err != nil {
				t.Errorf("ListPorts of the project's credential: %v, want ErrForbidden: %v", err, test.refused)
			}
			if test.refused && err != nil && (!strings.Contains(err.Error(), "region_name") || !strings.Contains(err.Error(), "red")) {
				t.Errorf("the error names no entry or no remedy: %v", err)
			}
			if err := listPorts(t, b); err != nil {
				t.Errorf("ListPorts of Kuryr's own credential: %v", err)
			}
		})
	}
}

// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kuryr-go/kuryr/internal/crashtest"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
)

// TestPoolSweepReal is a sample of TestPoolWhileWritesMeetTheirFate on the Neutron of OS_CLOUD. The
// credential must be admin there. It takes ten of all writes and ten of those to Neutron, which are
// about as many as there are. With -short it takes three of each.
//
// Everything that it creates is in projects of its own, and is removed. Neutron accepts projects
// that Keystone does not know.
func TestPoolSweepReal(t *testing.T) {
	api := newRealAPI(t)
	s := sweepOf(t)
	s.Sample = 10
	if testing.Short() {
		s.Sample = 3
	}
	s.Node = api.host(t)
	places := make(chan *openstackCloud, len(s.Clusters))
	for range s.Clusters {
		places <- api.place(t, s.Node)
	}
	s.Begin = func(w *crashtest.World) crashtest.Life { return newRealLife(w, places).life() }
	ofNeutron := crashtest.StoppedAfter
	ofNeutron.Name, ofNeutron.To = "stopped after one to Neutron", crashtest.TheCloud
	s.Run(t, crashtest.StoppedBefore, ofNeutron)
}

// newRealLife is newPoolLife in one of the places, which no other life uses meanwhile.
func newRealLife(w *crashtest.World, places chan *openstackCloud) *poolLife {
	place := <-places
	w.T.Cleanup(func() { places <- place })
	l := newPoolLife(w, func(w *crashtest.World) swept {
		o := *place
		o.t, o.w, o.clouds = w.T, w, w.T.TempDir()
		return &o
	})
	if !w.Undisturbed() { // a real cloud takes time for each list
		l.settings.Orphans.Interval.Duration, l.settings.Orphans.Grace.Duration = 500*time.Millisecond, time.Second
		l.live.Set(l.settings)
	}
	return l
}

// realURL is the apparent address of a realAPI.
const realURL = "http://openstack.invalid"

// realAPI is a real OpenStack with the needed services below one URL, like the simulator. It
// implements openstackAPI.
type realAPI struct {
	at     map[string]string // by the first element of the path
	clouds []byte
	token  string
}

// newRealAPI connects to the cloud of $OS_CLOUD, or skips the test.
func newRealAPI(t *testing.T) *realAPI {
	t.Helper()
	name, file := os.Getenv("OS_CLOUD"), os.Getenv("OS_CLIENT_CONFIG_FILE")
	if name == "" || file == "" {
		sdntest.Missing(t, "OS_CLOUD or OS_CLIENT_CONFIG_FILE is not set: no real Neutron to try; they are to lead to a cloud in a clouds.yaml whose user is admin")
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var document struct{ Clouds map[string]map[string]any }
	if err := yaml.Unmarshal(content, &document); err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
	entry, found := document.Clouds[name]
	auth, _ := entry["auth"].(map[string]any)
	if !found || auth == nil {
		t.Fatalf("%s has no cloud %s with auth", file, name)
	}
	at, _ := auth["auth_url"].(string)
	a := &realAPI{at: map[string]string{"identity": strings.TrimSuffix(strings.TrimSuffix(at, "/"), "/v3")}}
	a.logIn(t, auth)
	auth = maps.Clone(auth)
	auth["auth_url"] = realURL + "/identity/v3"
	entry["auth"] = auth
	if a.clouds, err = yaml.Marshal(map[string]any{"clouds": map[string]any{"kuryr": entry}}); err != nil {
		t.Fatal(err)
	}
	return a
}

// logIn gets a token and the addresses of Neutron and Octavia.
func (a *realAPI) logIn(t *testing.T, auth map[string]any) {
	t.Helper()
	domain := func(of string) map[string]any {
		if id := auth[of+"_domain_id"]; id != nil {
			return map[string]any{"id": id}
		}
		return map[string]any{"name": auth[of+"_domain_name"]}
	}
	body, err := json.Marshal(map[string]any{"auth": map[string]any{
		"identity": map[string]any{"methods": []string{"password"}, "password": map[string]any{"user": map[string]any{
			"name": auth["username"], "password": auth["password"], "domain": domain("user"),
		}}},
		"scope": map[string]any{"project": map[string]any{"name": auth["project_name"], "domain": domain("project")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post(a.at["identity"]+"/v3/auth/tokens", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var out struct {
		Token struct {
			Catalog []struct {
				Type      string
				Endpoints []struct{ Interface, URL string }
			}
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil || answer.StatusCode != http.StatusCreated {
		t.Fatalf("logging in: %s, %v", answer.Status, err)
	}
	a.token = answer.Header.Get("X-Subject-Token")
	paths := map[string]string{"network": "networking", "load-balancer": "load-balancer"}
	for _, service := range out.Token.Catalog {
		for _, e := range service.Endpoints {
			if path := paths[service.Type]; path != "" && e.Interface == "public" {
				a.at[path] = strings.TrimSuffix(e.URL, "/")
			}
		}
	}
	if a.at["networking"] == "" {
		t.Fatal("the catalogue has no public endpoint of type network")
	}
}

// URL implements openstackAPI.
func (a *realAPI) URL() string { return realURL }

// Clouds implements openstackAPI.
func (a *realAPI) Clouds() []byte { return a.clouds }

// ServeHTTP implements http.Handler. It forwards the request to the service. It replaces the
// addresses of services in the answer by its own.
func (a *realAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	service, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	target, err := url.Parse(a.at[service] + "/" + rest)
	if err != nil || a.at[service] == "" {
		http.NotFound(w, r)
		return
	}
	target.RawQuery = r.URL.RawQuery
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = target, ""
			p.Out.Header.Del("Accept-Encoding") // the body has to be read
		},
		ModifyResponse: a.redirect,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	proxy.ServeHTTP(w, r)
}

func (a *realAPI) redirect(answer *http.Response) error {
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil {
		return err
	}
	for service, at := range a.at {
		body = bytes.ReplaceAll(body, []byte(at), []byte(realURL+"/"+service))
	}
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// place creates a project for pods, and has it removed.
func (a *realAPI) place(t *testing.T, host string) *openstackCloud {
	t.Helper()
	o := a.bare(t)
	t.Cleanup(func() {
		for _, kind := range []string{"port", "subnet", "network", "security-group"} {
			o.removeAll(kind)
		}
	})
	o.furnish(host)
	return o
}

// bare is an empty project.
func (a *realAPI) bare(t *testing.T) *openstackCloud {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	project := hex.EncodeToString(id)
	// Listing ports alone is slow enough. A controller of pods touches no other kind.
	return &openstackCloud{t: t, api: a, token: a.token, cluster: "sweep-" + project[:12], project: project, kinds: []string{"port"}}
}

// An unreachable Neutron is an error, and does not end the test binary.
func TestRealAPIThatIsAway(t *testing.T) {
	away := httptest.NewServer(nil)
	away.Close()
	o := &openstackCloud{t: t, api: &realAPI{at: map[string]string{"networking": away.URL}}}
	if rows, err := o.list("port"); err == nil {
		t.Errorf("a Neutron that is away has the ports %v", rows)
	}
}

func (o *openstackCloud) removeAll(kind string) {
	rows, err := o.list(kind)
	if err != nil {
		o.t.Errorf("listing what is to be removed: %v", err)
	}
	for _, row := range rows {
		if _, err := o.ask(http.MethodDelete, "/networking/v2.0/"+kind+"s/"+row["id"].(string), nil, nil); err != nil {
			o.t.Error(err)
		}
	}
}

// host returns a host that ports can be bound to.
func (a *realAPI) host(t *testing.T) string {
	t.Helper()
	return sdntest.Host(t, func(into any) error {
		_, err := (&openstackCloud{t: t, api: a, token: a.token}).ask(http.MethodGet, "/networking/v2.0/agents", nil, into)
		return err
	})
}

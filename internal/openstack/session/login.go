// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"gopkg.in/yaml.v2"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// login makes sessions of one credential, one at a time, and keeps the last.
//
// gophercloud can log in again by itself; that is off, as a session here is
// never changed, and so needs no lock while in use.
type login struct {
	cloud, file string
	timeout     time.Duration
	metrics     *metrics
	wanted      string // project that the token has to be of; empty: any
	main        *login // of the credential whose region it has to be of; nil: any

	now    func() time.Time
	logins sdn.Answers[struct{}, *session] // under way

	mu       sync.Mutex
	last     *session
	refused  denial
	outdated denial // of the last session that found no service; see afresh
}

// newLogin returns a login that reads and sends nothing yet.
func newLogin(cloud, file string, timeout time.Duration, m *metrics, wanted string) *login {
	return &login{cloud: cloud, file: file, timeout: timeout, metrics: m, wanted: wanted, now: time.Now}
}

// session is a token and where the services are.
type session struct {
	client     *gophercloud.ServiceClient // Neutron
	balancer   *gophercloud.ServiceClient // Octavia; nil: the catalogue has none
	identity   *gophercloud.ServiceClient // Keystone
	transport  *http.Transport
	credential string // whose it is, for messages: never a secret
	project    string // of the token; empty if it is of none
	begun      time.Time
}

// credential is what a login needs, as found in clouds.yaml or the environment.
type credential struct {
	auth     gophercloud.AuthOptions
	endpoint gophercloud.EndpointOpts
	tls      *tls.Config
	name     string
}

func (l *login) credential() (credential, error) {
	cloud := cmp.Or(l.cloud, os.Getenv("OS_CLOUD"))
	if cloud == "" && os.Getenv("OS_AUTH_URL") == "" {
		return credential{}, errors.New("no cloud named: set neutron.cloud in the configuration, or OS_CLOUD, or OS_AUTH_URL and the other OS_* variables")
	}
	cloud = cmp.Or(cloud, environmentCloud)
	read, err := l.entry(cloud)
	if err != nil {
		return credential{}, err
	}
	var c credential
	c.auth, c.endpoint, c.tls, err = clouds.Parse(append(read, clouds.WithCloudName(cloud))...)
	if at := new(fs.PathError); errors.As(err, &at) { // at.Path may be a key that was written in place of its file
		return credential{}, fmt.Errorf("cloud %q: reading a file that cacert, cert, key or profile needs: %w", cloud, at.Err)
	} else if err != nil {
		return credential{}, fmt.Errorf("cloud %q: correct cacert, cert and key, which name files of PEM, or profile, or system_scope", cloud)
	}
	if c.auth.IdentityEndpoint == "" {
		return credential{}, fmt.Errorf("cloud %q has no auth_url", cloud)
	}
	c.name = credentialName(cloud, c.auth)
	return c, nil
}

// entry reads the entry of a cloud in clouds.yaml, and in secure.yaml beside it, where OpenStack's
// clients look. clouds.Parse gets no other text to parse, as its parser's errors repeat passwords.
func (l *login) entry(cloud string) ([]clouds.ParseOption, error) {
	if cloud == environmentCloud {
		return []clouds.ParseOption{clouds.WithCloudsYAML(cloudFromEnvironment())}, nil
	}
	places := []string{cmp.Or(l.file, os.Getenv("OS_CLIENT_CONFIG_FILE"))}
	if places[0] == "" {
		home, _ := os.UserConfigDir()
		places = []string{"clouds.yaml", filepath.Join(home, "openstack", "clouds.yaml"), "/etc/openstack/clouds.yaml"}
	}
	for _, file := range places {
		all, err := readClouds(file)
		secrets, other := readClouds(filepath.Join(filepath.Dir(file), "secure.yaml"))
		if err := cmp.Or(err, other); err != nil {
			return nil, err
		}
		if c, ok := all.Clouds[cloud]; ok {
			c.AuthInfo = cmp.Or(c.AuthInfo, &clouds.AuthInfo{}) // clouds.Parse panics without one
			all.Clouds = map[string]clouds.Cloud{cloud: c}
			return []clouds.ParseOption{clouds.WithCloudsYAML(asYAML(all)), clouds.WithSecureYAML(asYAML(secrets))}, nil
		}
	}
	return nil, fmt.Errorf("no cloud %q in %s", cloud, strings.Join(places, ", "))
}

var yamlLine = regexp.MustCompile(`(?m)^(yaml:| ) line \d+`)

// readClouds reads a clouds.yaml or secure.yaml. Of the parser's error it repeats only the line.
func readClouds(file string) (all clouds.Clouds, err error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return all, err
	}
	if err := yaml.Unmarshal(text, &all); err != nil {
		return all, fmt.Errorf("correct the YAML of %s (%s): a password with special characters needs quotes",
			file, cmp.Or(yamlLine.FindString(err.Error()), "line unknown"))
	}
	return all, nil
}

// asYAML writes a clouds.yaml.
func asYAML(v any) *bytes.Reader {
	text, _ := yaml.Marshal(v) // it has nothing that cannot be written
	return bytes.NewReader(text)
}

func credentialName(cloud string, a gophercloud.AuthOptions) string {
	who := "a token"
	if name := a.ApplicationCredentialName + a.ApplicationCredentialID; name != "" {
		who = "application credential " + name
	} else if name := cmp.Or(a.Username, a.UserID); name != "" {
		who = "user " + name
	}
	if cloud == environmentCloud {
		return who + " of the OS_* variables"
	}
	return fmt.Sprintf("%s of cloud %q", who, cloud)
}

// environmentCloud names the entry that stands for the OS_* variables.
const environmentCloud = "OS_*"

// cloudFromEnvironment writes the OS_* variables as a clouds.yaml, so that both ways use one
// parser. (gophercloud's own reader of the environment has no project domain separate from the
// user's.)
func cloudFromEnvironment() *bytes.Reader {
	auth := map[string]string{}
	for _, key := range []string{
		"auth_url", "username", "user_id", "password", "token", "user_domain_id", "user_domain_name",
		"project_id", "project_name", "project_domain_id", "project_domain_name", "domain_id", "domain_name",
		"system_scope", "trust_id",
		"application_credential_id", "application_credential_name", "application_credential_secret",
	} {
		auth[key] = os.Getenv("OS_" + strings.ToUpper(key))
	}
	cloud := map[string]any{"auth": auth}
	if v := strings.ToLower(os.Getenv("OS_INSECURE")); v == "1" || v == "true" {
		cloud["verify"] = false
	}
	return asYAML(map[string]any{"clouds": map[string]any{environmentCloud: cloud}})
}

// session returns the session in use, or a new one if that is stale.
func (l *login) session(ctx context.Context, stale *session) (*session, error) {
	if s, err := l.known(stale); s != nil || err != nil {
		return s, err
	}
	fresh, err := l.logins.Get(ctx, struct{}{}, 0, func(ctx context.Context) (*session, error) { return l.renew(ctx, stale) })
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("waiting for a login: %w", err)
	}
	return fresh, err
}

// known returns the session in use or why there is none; neither if it takes a login.
func (l *login) known(stale *session) (*session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil && l.last != stale {
		return l.last, nil
	}
	return nil, l.refused.stands(l.now(), l.credential)
}

func (l *login) renew(ctx context.Context, stale *session) (*session, error) {
	if s, err := l.known(stale); s != nil || err != nil {
		return s, err // found out while we were on the way here
	}
	c, err := l.credential()
	if err != nil {
		err = fmt.Errorf("reading the OpenStack credential: %w: %w", sdn.ErrForbidden, err)
	}
	var s *session
	if err == nil {
		s, err = l.open(ctx, c)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, sdn.ErrForbidden) {
		err = loginError{err}
		l.refused = l.refused.again(c, err, l.now())
	}
	if err != nil {
		return nil, err
	}
	l.last, l.refused = s, denial{}
	if stale != nil {
		stale.transport.CloseIdleConnections()
	}
	return s, nil
}

// afresh returns a session of another login, as nothing answers where s knows a service, or something
// else does: CA, region, interface and catalogue are read again. It returns s after a failure, and if
// the last try is shorter ago than a pause, with the same files. A login that ctx cuts off goes on.
func (l *login) afresh(ctx context.Context, s *session) *session {
	l.mu.Lock()
	tried := l.last == s && l.outdated.stands(l.now(), l.credential) != nil
	if l.last == s && !tried {
		c, _ := l.credential()
		l.outdated = l.outdated.again(c, sdn.ErrUnavailable, l.now())
	}
	l.mu.Unlock()
	if tried {
		return s
	}
	fresh, _ := l.session(ctx, s)
	return cmp.Or(fresh, s)
}

// refusedError is Keystone's answer 401 to a credential, which it may count against the account.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// loginError is an sdn.ErrLogin with the text of its cause.
type loginError struct{ error }

// Unwrap makes a loginError an ErrLogin as well as what caused it.
func (e loginError) Unwrap() []error { return []error{sdn.ErrLogin, e.error} }

func (l *login) open(ctx context.Context, c credential) (*session, error) {
	client, err := openstack.NewClient(c.auth.IdentityEndpoint)
	if err != nil {
		return nil, fmt.Errorf("auth_url %q: %w: %w", c.auth.IdentityEndpoint, sdn.ErrForbidden, err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = c.tls
	transport.DialContext = dialer.DialContext
	// A connection that has idled long may be closed at the other end just as
	// a request goes out on it, and a POST is not sent twice.
	transport.IdleConnTimeout = 15 * time.Second
	transport.MaxIdleConnsPerHost = 32
	client.HTTPClient = http.Client{
		Transport: l.metrics.around(transport), Timeout: l.timeout,
		// A redirect would take the token along to another host, and make a POST a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	client.UserAgent.Prepend("kuryr")
	if err := openstack.Authenticate(ctx, client, c.auth); err != nil {
		var answer gophercloud.ErrUnexpectedResponseCode
		for _, secret := range []string{c.auth.Password, c.auth.ApplicationCredentialSecret, c.auth.TokenID} {
			sent, failed := json.Marshal(secret)
			if failed == nil && errors.As(err, &answer) && secret != "" && bytes.Contains(answer.Body, sent[1:len(sent)-1]) {
				answer.Body = nil // it repeats the request
				err = answer
			}
		}
		failed := fmt.Errorf("logging in to Keystone %s as %s: %w", c.auth.IdentityEndpoint, c.name, explain(ctx, err, "", Keystone))
		if gophercloud.ResponseCodeIs(err, http.StatusUnauthorized) {
			failed = refusedError{failed}
		}
		return nil, failed
	}
	project := projectOf(client)
	if l.wanted != "" && !sdn.SameID(project, l.wanted) {
		return nil, fmt.Errorf("logging in as %s: its project is %q, not %s: %w", c.name, project, l.wanted, sdn.ErrForbidden)
	}
	network, err := locate(client, c.endpoint, "network")
	if err != nil && project == "" {
		return nil, fmt.Errorf("logging in as %s: the token is of no project: set project_name and project_domain_name, or project_id: %w", c.name, sdn.ErrForbidden)
	} else if err != nil {
		return nil, fmt.Errorf("the catalogue of %s has no Neutron of region %q and interface %s: correct region_name or interface in clouds.yaml: %w",
			c.auth.IdentityEndpoint, c.endpoint.Region, c.endpoint.Availability, sdn.ErrUnavailable)
	}
	if l.main != nil {
		if err := l.main.shares(ctx, network); err != nil {
			return nil, fmt.Errorf("logging in as %s: %w", c.name, err)
		}
	}
	balancer, _ := locate(client, c.endpoint, "load-balancer")
	identity := &gophercloud.ServiceClient{ProviderClient: client, Endpoint: client.IdentityBase, ResourceBase: client.IdentityBase + "v3/", Type: "identity"}
	return &session{client: network, balancer: balancer, identity: identity, transport: transport, credential: c.name, project: project, begun: time.Now()}, nil
}

// shares returns an error unless network is a Neutron of the region of l's own, by any interface.
// Another region has the same projects and none of their ports: what is missing there is not deleted.
// A failure of l's own credential concerns no other one.
func (l *login) shares(ctx context.Context, network *gophercloud.ServiceClient) error {
	s, _ := l.session(ctx, nil)
	if s == nil {
		return nil
	}
	regions := map[string][]string{} // by endpoint
	if result, ok := s.client.GetAuthResult().(tokens.CreateResult); ok {
		catalog, _ := result.ExtractServiceCatalog()
		for _, e := range catalog.Entries {
			for _, at := range e.Endpoints {
				url := base(gophercloud.NormalizeURL(at.URL))
				regions[url] = append(regions[url], at.RegionID)
			}
		}
	}
	shared := func(region string) bool { return slices.Contains(regions[s.client.Endpoint], region) }
	if network.Endpoint == s.client.Endpoint || slices.ContainsFunc(regions[network.Endpoint], shared) {
		return nil
	}
	return fmt.Errorf("its Neutron %s is not in the region of %s, whose Neutron is %s: give both entries of clouds.yaml the same region_name: %w",
		network.Endpoint, s.credential, s.client.Endpoint, sdn.ErrForbidden)
}

// base returns the URL of an endpoint without the version that it may have.
func base(url string) string { return strings.TrimSuffix(strings.TrimSuffix(url, "v2.0/"), "v2/") }

// locate finds a service in the catalogue. Not openstack.NewNetworkV2 and its kin:
// they ask for versions at each login, and double the version of an endpoint that
// has one.
func locate(client *gophercloud.ProviderClient, where gophercloud.EndpointOpts, kind string) (*gophercloud.ServiceClient, error) {
	where.ApplyDefaults(kind)
	at, err := client.EndpointLocator(where)
	if err != nil {
		return nil, err
	}
	at = base(at)
	return &gophercloud.ServiceClient{ProviderClient: client, Endpoint: at, ResourceBase: at + "v2.0/", Type: kind}, nil
}

// projectOf returns the project of a login's token. It is empty if the token has none, or if the
// login itself used a token with unknown project.
func projectOf(client *gophercloud.ProviderClient) string {
	if result, ok := client.GetAuthResult().(interface {
		ExtractProject() (*tokens.Project, error)
	}); ok {
		if p, _ := result.ExtractProject(); p != nil {
			return p.ID
		}
	}
	return ""
}

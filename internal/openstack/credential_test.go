// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// listWith lists ports with an entry of clouds.yaml. Files are texts by name.
func listWith(t *testing.T, entry string, files map[string]string) error {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	b, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one", Cloud: entry, CloudsFile: filepath.Join(dir, "clouds.yaml")})
	if err != nil {
		return err
	}
	return listPorts(t, b)
}

// TestErrorsKeepSecrets: what is wrong with clouds.yaml is told by file and line, and never by its
// text, as it may be a password of that entry or another.
func TestErrorsKeepSecrets(t *testing.T) {
	const (
		secret = "s3cr3tPASSWORD1"
		good   = "    auth: {auth_url: 'http://127.0.0.1:1/v3', username: u, password: p, project_id: i}\n"
	)
	for _, test := range []struct{ name, clouds, secure, want string }{
		{"alias", "clouds:\n  k:\n    auth:\n      password: *s3cr3tPASSWORD1\n", "", "clouds.yaml"},
		{"of another entry", "clouds:\n  k:\n" + good + "  red: {auth: {password: *s3cr3tPASSWORD1 }}\n", "", "clouds.yaml"},
		{"in secure.yaml", "clouds:\n  k:\n" + good, "clouds: {k: {auth: {password: *s3cr3tPASSWORD1 }}}", "secure.yaml"},
		{"two types wrong", "clouds:\n  k:\n    auth: s3cr3tPASSWORD1\n  red: s3cr3tPASSWORD1\n", "", "line 3"},
		{"tag", "clouds: {k: {auth: {password: !s3cr3tPASSWORD1 ''}, verify: !!bool s3cr3tPASSWORD1 }}", "", "clouds.yaml"},
		{"colon", "clouds:\n  k:\n    auth:\n      password: s3cr3t: PASSWORD1\n", "", "line 4"},
		{"directive", "clouds:\n  k:\n    auth:\n      password: %s3cr3tPASSWORD1\n", "", "line 4"},
		{"block", "clouds:\n  k:\n    auth:\n      password: >s3cr3tPASSWORD1\n", "", "line"},
		{"key in place of its file", "clouds:\n  k:\n    cert: /c\n    key: s3cr3tPASSWORD1\n" + good, "", "key"},
		{"authority in place of its file", "clouds:\n  k:\n    cacert: s3cr3tPASSWORD1\n" + good, "", "cacert"},
		{"key that is no PEM", "clouds:\n  k:\n    cert: secure.yaml\n    key: secure.yaml\n" + good, "", "cert"},
		{"no authentication", "clouds: {k: {auth: }}", "", "auth_url"},
		{"no entry", "clouds: {red: {auth: {password: s3cr3tPASSWORD1}}}", "", `no cloud "k"`},
		{"no file", "", "", "clouds.yaml"},
	} {
		files := map[string]string{"clouds.yaml": test.clouds}
		if test.clouds == "" {
			delete(files, "clouds.yaml")
		}
		if test.secure != "" {
			files["secure.yaml"] = test.secure
		}
		err := listWith(t, "k", files)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "PASSWORD1") {
			t.Errorf("%s: error %v; want one with %q, without the secret", test.name, err, test.want)
		}
	}

	// A proxy, or a firewall, whose answer to a login repeats it.
	for _, status := range []int{400, 401, 502} {
		echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = io.Copy(w, r.Body)
		}))
		t.Cleanup(echo.Close)
		for _, auth := range []string{
			`username: u, project_id: i, user_domain_id: default, password: 's3cr3t"PASSWORD1'`,
			`application_credential_id: i, application_credential_secret: ` + secret,
		} {
			err := listWith(t, "k", map[string]string{"clouds.yaml": "clouds: {k: {auth: {auth_url: '" + echo.URL + "/v3', " + auth + "}}}"})
			if err == nil || !strings.Contains(err.Error(), http.StatusText(status)) && !strings.Contains(err.Error(), "Keystone answered") ||
				strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "PASSWORD1") {
				t.Errorf("login that is answered by %d and its own text: %v; want Keystone's status without the secret", status, err)
			}
		}
	}
}

// TestLoginFindsNoService: the error says which setting of clouds.yaml is wrong, as the token and its
// catalogue tell.
func TestLoginFindsNoService(t *testing.T) {
	cloud := openstacksim.Start(t)
	whole := string(cloud.Clouds())
	without := func(text, key string) string {
		var kept []string
		for _, line := range strings.Split(text, "\n") {
			if !strings.Contains(line, key) {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "\n")
	}
	for _, test := range []struct {
		name, clouds string
		class        error
		want, not    string
	}{
		{"no project", without(whole, "project_"), sdn.ErrLogin, "project_name", "region"},
		{"no project and a wrong region", strings.ReplaceAll(without(whole, "project_"), "RegionOne", "Nowhere"), sdn.ErrLogin, "project_name", "region"},
		{"another region", strings.ReplaceAll(whole, "RegionOne", "Nowhere"), sdn.ErrUnavailable, `Neutron of region "Nowhere" and interface public: correct region_name or interface`, "project_name"},
	} {
		err := listWith(t, "kuryr", map[string]string{"clouds.yaml": test.clouds})
		if !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), test.not) {
			t.Errorf("%s: %v; want %v with %q, without %q", test.name, err, test.class, test.want, test.not)
		}
	}
}

// TestCatalogueWithoutTheInterface: the catalogue has endpoints, but not for everyone.
func TestCatalogueWithoutTheInterface(t *testing.T) {
	m := newMovable(t)
	m.catalog.Store(strings.NewReplacer(`"interface":"internal"`, `"interface":"public"`))
	m.clouds(t, "    auth:", "    interface: internal\n    auth:")
	err := listPorts(t, m.backend(t))
	if !errors.Is(err, sdn.ErrUnavailable) || !strings.Contains(err.Error(), `interface internal`) {
		t.Errorf("ListPorts by an interface that is not there: %v; want ErrUnavailable that names it", err)
	}
}

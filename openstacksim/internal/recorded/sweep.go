// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package recorded

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// row has the fields that the removal of any resource needs.
type row struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	DeviceOwner string `json:"device_owner"`
	DeviceID    string `json:"device_id"`
	VIPPort     string `json:"vip_port_id"`
}

// swept lists the resources of a project, in the order of their removal.
var swept = []struct{ service, path, query string }{
	{"load-balancer", "/v2.0/lbaas/loadbalancers", "?cascade=true"},
	{"network", "/v2.0/floatingips", ""},
	{"network", "/v2.0/trunks", ""},
	{"network", "/v2.0/ports", ""},
	{"network", "/v2.0/routers", ""},
	{"network", "/v2.0/networks", ""},
	{"network", "/v2.0/subnetpools", ""},
	{"network", "/v2.0/security-groups", ""},
	{"network", "/v2.0/address-groups", ""},
}

// sweep tries once to remove everything in the projects, and what their users made in Keystone. An error means that something is left:
// Octavia deletes load balancers in the background, and other resources depend on them.
func (c *Cloud) sweep(ctx context.Context) error {
	var errs error
	for _, kind := range swept {
		rows, err := c.list(ctx, kind.service, kind.path)
		errs = errors.Join(errs, err)
		for _, row := range rows {
			errs = errors.Join(errs, gone(c.remove(ctx, kind.service, kind.path, kind.query, row)))
		}
		if kind.service == "load-balancer" && len(rows) > 0 {
			return errors.Join(errs, errors.New("load balancers are going"))
		}
	}
	for _, project := range c.projects {
		for service, path := range map[string]string{"network": "/v2.0/quotas/", "load-balancer": "/v2.0/lbaas/quotas/"} {
			errs = errors.Join(errs, gone(c.admin.call(ctx, "DELETE", service, path+project, nil, nil)))
		}
	}
	for _, user := range c.users {
		path := "/v3/users/" + user + "/application_credentials"
		var got struct {
			All []row `json:"application_credentials"`
		}
		errs = errors.Join(errs, c.admin.call(ctx, "GET", "identity", path, nil, &got))
		for _, row := range got.All {
			errs = errors.Join(errs, gone(c.admin.call(ctx, "DELETE", "identity", path+"/"+row.ID, nil, nil)))
		}
	}
	return errs
}

// list returns the resources of a kind in both projects. One project may have ports on the
// other's network.
func (c *Cloud) list(ctx context.Context, service, path string) ([]row, error) {
	if c.admin.Endpoints[service] == "" {
		return nil, nil
	}
	var rows []row
	kind := strings.ReplaceAll(path[strings.LastIndex(path, "/")+1:], "-", "_")
	for _, project := range c.projects {
		var got map[string][]row
		if err := c.admin.call(ctx, "GET", service, path+"?project_id="+project, nil, &got); err != nil {
			return rows, err
		}
		rows = append(rows, got[kind]...)
	}
	return rows, nil
}

func (c *Cloud) remove(ctx context.Context, service, path, query string, r row) error {
	switch {
	case r.DeviceOwner == "network:router_interface":
		return c.removeInterface(ctx, r)
	case r.DeviceOwner == "network:router_gateway", r.DeviceOwner == "network:floatingip":
		return nil // the cloud deletes it with its router or floating IP
	case path == "/v2.0/trunks": // a disabled trunk could not be deleted
		on := object{"trunk": object{"admin_state_up": true}}
		if err := c.admin.call(ctx, "PUT", service, path+"/"+r.ID, on, nil); err != nil {
			return err
		}
	}
	return c.admin.call(ctx, "DELETE", service, path+"/"+r.ID+query, nil, nil)
}

// removeInterface removes a router's interface, or a port that only claims to be one.
func (c *Cloud) removeInterface(ctx context.Context, r row) error {
	router := "/v2.0/routers/" + r.DeviceID + "/remove_router_interface"
	err := c.admin.call(ctx, "PUT", "network", router, object{"port_id": r.ID}, nil)
	if err == nil || gone(err) != nil {
		return err
	}
	port := "/v2.0/ports/" + r.ID
	if err := c.admin.call(ctx, "PUT", "network", port, object{"port": object{"device_owner": ""}}, nil); err != nil {
		return err
	}
	return c.admin.call(ctx, "DELETE", "network", port, nil, nil)
}

// gone treats "not found" as success.
func gone(err error) error {
	var status *statusError
	if errors.As(err, &status) && status.status == http.StatusNotFound {
		return nil
	}
	return err
}

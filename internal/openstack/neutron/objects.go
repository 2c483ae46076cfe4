// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// kind is one of Neutron's collections.
type kind struct {
	many, one string // in paths, and in bodies
	missing   string // the NeutronError of an object that does not exist
}

var (
	portKind       = kind{"ports", "port", "PortNotFound"}
	trunkKind      = kind{"trunks", "trunk", "TrunkNotFound"}
	networkKind    = kind{"networks", "network", "NetworkNotFound"}
	subnetKind     = kind{"subnets", "subnet", "SubnetNotFound"}
	subnetPoolKind = kind{"subnetpools", "subnetpool", "SubnetPoolNotFound"}
	routerKind     = kind{"routers", "router", "RouterNotFound"}
	groupKind      = kind{"security-groups", "security_group", "SecurityGroupNotFound"}
	ruleKind       = kind{"security-group-rules", "security_group_rule", "SecurityGroupRuleNotFound"}
	floatingKind   = kind{"floatingips", "floatingip", session.FloatingMissing}
)

// resource has the fields that all objects of Neutron have.
type resource struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	ProjectID   string `json:"project_id"`
}

// Key implements session.Listable: lists are paged by the ID.
func (r resource) Key() string { return r.ID }

func (r resource) mark() session.Mark { return session.ParseMark(r.Description) }

// marked is an object whose description may have a mark.
type marked interface {
	session.Listable
	mark() session.Mark
}

// request is one about an object, or about a new one if the ID is empty. A nil body is none.
func (k kind) request(method, id string, body any) session.Request {
	r := session.Request{Method: method, Path: []string{k.many}, Subject: k.missing}
	if id != "" {
		r.Path = append(r.Path, id)
	}
	if body != nil {
		r.Body = object{k.one: body}
	}
	return r
}

// send sends a request, and returns the object in its answer.
func send[T any](ctx context.Context, c *session.Client, k kind, r session.Request) (T, error) {
	var body map[string]T
	r.Out = &body
	err := c.Do(ctx, r)
	return body[k.one], err
}

// get reads fields of an object, or all: ErrNotFound if it does not exist, or the ID is empty.
func get[T any](ctx context.Context, b *Neutron, k kind, id string, fields ...string) (T, error) {
	if id == "" {
		var none T
		return none, fmt.Errorf("the request names no %s: %w", k.one, sdn.ErrNotFound)
	}
	r := k.request(http.MethodGet, id, nil)
	if len(fields) > 0 {
		r.Query = url.Values{"fields": fields}
	}
	return send[T](ctx, b.Client, k, r)
}

// getNamed is get for an object that the request for a new port names: ErrInvalid if it does not exist.
func getNamed[T any](ctx context.Context, c *session.Client, k kind, id string, fields ...string) (T, error) {
	r := k.request(http.MethodGet, id, nil)
	r.Query, r.Subject, r.Creates = url.Values{"fields": fields}, "", true
	return send[T](ctx, c, k, r)
}

// getOwn is get for an object of this cluster: ErrNotFound if it is not.
func getOwn[T marked](ctx context.Context, b *Neutron, k kind, id string, fields ...string) (T, error) {
	w, err := get[T](ctx, b, k, id, fields...)
	if err == nil && w.mark().Cluster != b.Config.ClusterID {
		err = fmt.Errorf("it has no mark of cluster %s: %w", b.Config.ClusterID, sdn.ErrNotFound)
	}
	return w, err
}

// listOwn lists the matching objects of this cluster, by their IDs. Neutron has no filter for a part
// of the description, so all that the credential sees are listed, with few fields.
func listOwn[T marked](ctx context.Context, b *Neutron, k kind, match url.Values, fields ...string) ([]T, error) {
	r := session.Request{Path: []string{k.many}, Query: byID(match, fields), Subject: k.missing}
	return session.ReadAll(ctx, b.Client, r, func(w T) bool { return w.mark().Cluster == b.Config.ClusterID })
}

// byID is a query for matching objects in a stable order: no object is seen twice or omitted
// because another one is created or deleted meanwhile.
func byID(match url.Values, fields []string) url.Values {
	query := url.Values{"fields": fields, "sort_key": {"id"}, "sort_dir": {"asc"}}
	maps.Copy(query, match)
	return query
}

// newBody is the body of a new object, whose owner is in its description: tags cannot be given as one
// is made. An empty project is the credential's.
func (b *Neutron) newBody(owner sdn.Owner, name, projectID string) (object, error) {
	description, err := session.Mark{Cluster: b.Config.ClusterID, Owner: owner}.Description()
	body := object{"description": description}
	session.Set(body, map[string]string{"name": name, "project_id": projectID})
	return body, err
}

// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// tagFilters are the filters by tags. Each value may be several tags, separated by commas
// (neutron 21.0.0: db/tag's query hooks in neutron_lib).
var tagFilters = map[string]func(tags, wanted []string) bool{
	"tags":         func(tags, wanted []string) bool { return hasAll(tags, split(wanted)) },
	"tags-any":     func(tags, wanted []string) bool { return hasAny(tags, split(wanted)) },
	"not-tags":     func(tags, wanted []string) bool { return !hasAll(tags, split(wanted)) },
	"not-tags-any": func(tags, wanted []string) bool { return !hasAny(tags, split(wanted)) },
}

func split(wanted []string) []string {
	if len(wanted) == 1 && !strings.Contains(wanted[0], ",") {
		return wanted
	}
	return strings.Split(strings.Join(wanted, ","), ",")
}

func hasAll(tags, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(t string) bool { return !slices.Contains(tags, t) })
}

func hasAny(tags, wanted []string) bool {
	return slices.ContainsFunc(wanted, func(t string) bool { return slices.Contains(tags, t) })
}

// maxTag is the maximum length of a tag (neutron 21.0.0: extensions/tagging.py).
const maxTag = 255

// tagged returns a row, and a function that stores it with other tags.
func (k *kind[T]) tagged(c *call, id string) (*standard, func(*standard), *fault) {
	if a := k.attrs.byName["tags"]; a == nil {
		return nil, nil, noSuchPath()
	}
	old, f := k.taggable(c, id)
	if f != nil {
		return nil, nil, f
	}
	return commonOf(old), func(s *standard) {
		row := new(T)
		*row = *old
		*commonOf(row) = *s
		k.put(c, row)
	}, nil
}

// taggable returns the row if the caller may see it. Neutron 26.0.3 finds it with all rights,
// applies the rule of tags, and has no answer of its own if there is none (extensions/tagging.py).
func (k *kind[T]) taggable(c *call, id string) (*T, *fault) {
	if !c.Later {
		row, f := k.find(c, id)
		if f != nil {
			f = refuse(http.StatusNotFound, "TagResourceNotFound", "Resource %s %s could not be found.", k.many, id)
		}
		return row, f
	}
	row, ok := k.rows.Get(id)
	if !ok {
		return nil, internalError()
	}
	rule := tagVerbs[c.request.Method] + k.one + ":tags"
	if !ruleRef(rule).allows(c, k.target(row, nil)) {
		return nil, refuse(http.StatusForbidden, "PolicyNotAuthorized", "rule:%s is disallowed by policy", rule)
	}
	return row, nil
}

var tagVerbs = map[string]string{
	http.MethodGet: "get_", http.MethodPost: "create_", http.MethodPut: "update_", http.MethodDelete: "delete_",
}

// tags answers /v2.0/KIND/ID/tags and /v2.0/KIND/ID/tags/TAG.
func (c *call) tags(h handler, id string, rest []string, body []byte) (int, any, *fault) {
	row, store, f := h.tagged(c, id)
	if f != nil {
		return 0, nil, f
	}
	t := tagging{c, *row, store}
	switch m := c.request.Method; {
	case len(rest) == 0 && m == http.MethodGet:
		return http.StatusOK, map[string]any{"tags": row.Tags}, nil
	case len(rest) == 0 && m == http.MethodPut:
		return t.replace(body, nil)
	case len(rest) == 0 && m == http.MethodPost && c.Later: // of the extension tag-creation
		return t.replace(body, row.Tags)
	case len(rest) == 0 && m == http.MethodDelete:
		return http.StatusNoContent, nil, t.save([]string{})
	case len(rest) == 1 && m == http.MethodGet:
		return http.StatusNoContent, nil, t.has(rest[0])
	case len(rest) == 1 && m == http.MethodPut:
		return http.StatusCreated, nil, t.add(rest[0])
	case len(rest) == 1 && m == http.MethodDelete:
		return http.StatusNoContent, nil, t.remove(rest[0])
	case len(rest) > 1:
		return 0, nil, noSuchPath()
	}
	return 0, nil, notAllowed()
}

// tagging is a request about the tags of one resource.
type tagging struct {
	c     *call
	row   standard
	store func(*standard)
}

// save stores other tags. Storing the same tags does not count as a change.
func (t tagging) save(tags []string) *fault {
	if slices.Equal(tags, t.row.Tags) {
		return nil
	}
	t.row.Tags = tags
	t.row.touch(t.c)
	t.store(&t.row)
	return nil
}

func (t tagging) has(tag string) *fault {
	if slices.Contains(t.row.Tags, tag) {
		return nil
	}
	return refuse(http.StatusNotFound, "TagNotFound", "Tag %s could not be found.", tag)
}

func (t tagging) add(tag string) *fault {
	if reason := checkString(tag, maxTag); reason != "" {
		return invalid("%s", reason)
	}
	if slices.Contains(t.row.Tags, tag) {
		return nil
	}
	return t.save(append(slices.Clone(t.row.Tags), tag))
}

func (t tagging) remove(tag string) *fault {
	if f := t.has(tag); f != nil {
		return f
	}
	return t.save(slices.DeleteFunc(slices.Clone(t.row.Tags), func(o string) bool { return o == tag }))
}

// replace stores the tags in the body beside those that are kept.
func (t tagging) replace(body []byte, kept []string) (int, any, *fault) {
	v, err := decode(body)
	if err != nil {
		return 0, nil, badRequest("Body contains invalid data")
	}
	object, _ := v.(map[string]any)
	list, there := object["tags"]
	if !there {
		return 0, nil, invalid("Invalid tags body")
	}
	if reason := listOf(checkString)(list, maxTag); reason != "" {
		return 0, nil, invalid("%s", reason)
	}
	tags := append([]string{}, kept...)
	for _, e := range list.([]any) {
		if tag := fmt.Sprint(e); !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return http.StatusOK, object, t.save(tags)
}

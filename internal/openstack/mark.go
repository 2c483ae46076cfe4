// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// What marks a resource as a cluster's, in its description and as tags.
const (
	clusterMark = "kuryr.cluster="
	ownerMark   = "kuryr.owner="
	// parentMark is of a port that another one lets pass by its address pairs. It
	// is in the description only: the parent has to be known when the port goes.
	parentMark = "kuryr.parent="
	// maxDescription is Neutron's own bound.
	maxDescription = 255
)

// mark says whose a resource is. The cluster is empty if it is not Kuryr's.
type mark struct {
	cluster string
	owner   sdn.Owner
	parent  string // port whose address pairs let it pass; empty: none
}

func (m mark) tags() []string {
	return []string{clusterMark + m.cluster, ownerMark + m.owner.String()}
}

func (m mark) description() (string, error) {
	words := m.tags()
	if m.parent != "" {
		words = append(words, parentMark+m.parent)
	}
	s := strings.Join(words, " ")
	if back := parseMark(s); back != m || m.owner == (sdn.Owner{}) {
		return "", fmt.Errorf("owner %q, parent port %q cannot be written down and read again: %w", m.owner, m.parent, sdn.ErrInvalid)
	}
	if len(s) > maxDescription {
		return "", fmt.Errorf("the mark of owner %q has %d bytes, more than Neutron's %d: %w", m.owner, len(s), maxDescription, sdn.ErrInvalid)
	}
	return s, nil
}

// parseMark reads a description. Other words beside the mark are a person's and
// do no harm; two clusters are nobody's.
func parseMark(description string) mark {
	var m mark
	for _, word := range strings.Fields(description) {
		if id, ok := strings.CutPrefix(word, clusterMark); ok {
			if m.cluster != "" || id == "" {
				return mark{}
			}
			m.cluster = id
		}
		if name, ok := strings.CutPrefix(word, ownerMark); ok {
			m.owner, _ = sdn.ParseOwner(name) // an owner nobody can read is none known
		}
		if id, ok := strings.CutPrefix(word, parentMark); ok {
			m.parent = id
		}
	}
	if m.cluster == "" {
		return mark{}
	}
	return m
}

// unmarked is a description without any mark.
func unmarked(description string) string {
	words := slices.DeleteFunc(strings.Fields(description), func(word string) bool {
		return strings.HasPrefix(word, clusterMark) || strings.HasPrefix(word, ownerMark) || strings.HasPrefix(word, parentMark)
	})
	return strings.Join(words, " ")
}

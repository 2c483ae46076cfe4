// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// PartialError comes with a list that lacks what some projects have, because each of them is read
// with a credential of its own and theirs failed. What the list has is as the backend has it. It is
// none of the errors above: it says nothing about the other projects.
type PartialError struct {
	Lacks map[string]error // by project: why its part is not there; never empty
}

func (e *PartialError) Error() string {
	var each []string
	for _, id := range slices.Sorted(maps.Keys(e.Lacks)) {
		each = append(each, fmt.Sprintf("project %s: %s", id, e.Lacks[id]))
	}
	return "the list is incomplete: " + strings.Join(each, "; ")
}

// Partial returns the error of a list that has a part of the resources; nil if there is no error,
// or if the list has nothing.
func Partial(err error) *PartialError {
	var partial *PartialError
	errors.As(err, &partial)
	return partial
}

// ErrorIn returns what the error of a list says about the resources of one project: nil if the list
// has all of them. Only then is a resource of the project gone that the list lacks.
func ErrorIn(projectID string, err error) error {
	partial := Partial(err)
	if partial == nil {
		return err
	}
	for id, lack := range partial.Lacks {
		if SameID(id, projectID) {
			return lack
		}
	}
	return nil
}

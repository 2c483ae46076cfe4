// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The annotation openstack.org/kuryr-vif names the KuryrPort of each interface
// of a pod, in the form of a versioned object:
//
//	{"eth0": {"versioned_object.data": {"selfLink": "/apis/openstack.org/v1/kuryrports/18f968a5-c420-4318-92d7-941eb5f9e60e"}},
//	 "versioned_object.name": "KuryrPortCRD", "versioned_object.version": "1.0"}
const (
	objectName    = "versioned_object.name"
	objectVersion = "versioned_object.version"
	vifName       = "KuryrPortCRD"
	vifVersion    = "1.0"
	selfLink      = "/apis/openstack.org/v1/kuryrports/"
)

// FormatVIFs writes the annotation, given the port of each interface. Interface
// names and port names need no escaping: the API server has seen to it.
func FormatVIFs(ports map[string]string) string {
	var b strings.Builder
	b.WriteString("{")
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		fmt.Fprintf(&b, `%q: {"versioned_object.data": {"selfLink": %q}}, `, name, selfLink+ports[name])
	}
	fmt.Fprintf(&b, `"%s": "%s", "%s": "%s"}`, objectName, vifName, objectVersion, vifVersion)
	return b.String()
}

// maxAnnotation is larger than anything that FormatVIFs writes. It limits what is read, because
// everybody who may write pods may write the annotation.
const maxAnnotation = 16 << 10

// ParseVIFs is the inverse of FormatVIFs. It accepts nothing else: no other field, no other
// version, no link to anything except a KuryrPort.
func ParseVIFs(annotation string) (map[string]string, error) {
	if annotation == "" || len(annotation) > maxAnnotation {
		return nil, fmt.Errorf("parsing annotation: %d bytes", len(annotation))
	}
	var fields map[string]json.RawMessage
	if err := decodeStrictly([]byte(annotation), &fields); err != nil {
		return nil, fmt.Errorf("parsing annotation: %w", err)
	}
	for field, want := range map[string]string{objectName: vifName, objectVersion: vifVersion} {
		if string(fields[field]) != strconv.Quote(want) {
			return nil, fmt.Errorf("parsing annotation: %s is not %s", field, want)
		}
		delete(fields, field)
	}
	ports := map[string]string{}
	for name, raw := range fields {
		port, err := parseVIF(raw)
		if err != nil {
			return nil, fmt.Errorf("parsing annotation of interface %q: %w", name, err)
		}
		ports[name] = port
	}
	return ports, nil
}

func parseVIF(raw json.RawMessage) (string, error) {
	var vif struct {
		Data *struct {
			SelfLink *string `json:"selfLink"`
		} `json:"versioned_object.data"`
	}
	if err := decodeStrictly(raw, &vif); err != nil {
		return "", err
	}
	if vif.Data == nil || vif.Data.SelfLink == nil {
		return "", errors.New("no selfLink")
	}
	port, ok := strings.CutPrefix(*vif.Data.SelfLink, selfLink)
	if !ok || len(validation.IsDNS1123Subdomain(port)) > 0 {
		return "", fmt.Errorf("%q is no link to a KuryrPort", *vif.Data.SelfLink)
	}
	return port, nil
}

// PortNamed returns the port that an annotation names for one of a pod's
// interfaces, or "" if it names none.
func PortNamed(annotation, name string) string {
	ports, err := ParseVIFs(annotation)
	if err != nil {
		return ""
	}
	return ports[name]
}

// decodeStrictly decodes one JSON value and no more.
func decodeStrictly(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}

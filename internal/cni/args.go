// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// Args are the values of CNI_ARGS: the pod, and, if the runtime knows it already, the port.
type Args struct {
	Namespace string // K8S_POD_NAMESPACE
	Name      string // K8S_POD_NAME
	UID       string // K8S_POD_UID; empty where the runtime does not give it
	Port      *Port  // PORT_UUID and its kin; nil: ask the API
}

// Port is a port as CNI_ARGS describe it.
type Port struct {
	ID        string // PORT_UUID
	Type      string // PORT_TYPE
	Addresses []PortAddress
	MAC       net.HardwareAddr // MAC; nil: one that Kuryr chooses
	MTU       int              // MTU in bytes; 0: the node's own
}

// PortAddress is IPV4 with GW, or IPV6 with GW6.
type PortAddress struct {
	Prefix  netip.Prefix // the address itself with its subnet's length
	Gateway netip.Addr   // invalid: none
}

var (
	uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	typeForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	// The MidoNet document writes commas between Kuryr's own arguments. Values
	// of others may hold commas, so that only these names end a value.
	commaForm = regexp.MustCompile(`,\s*(PORT_UUID|PORT_TYPE|IPV4|IPV6|GW6|GW|MAC|MTU|K8S_POD_[A-Z_]+)=`)
)

// ParseArgs reads CNI_ARGS: KEY=VALUE pairs between semicolons, or between
// commas before a name that is known here. Unknown names are passed over. The
// error is always a *types.Error.
func ParseArgs(args string) (Args, error) {
	values, err := pairs(args)
	if err != nil {
		return Args{}, err
	}
	a := Args{
		Namespace: values["K8S_POD_NAMESPACE"],
		Name:      values["K8S_POD_NAME"],
		UID:       values["K8S_POD_UID"],
	}
	if a.Port, err = parsePort(values); err != nil {
		return Args{}, err
	}
	if a.Port == nil && (a.Namespace == "" || a.Name == "") {
		return Args{}, badArg("K8S_POD_NAMESPACE and K8S_POD_NAME are missing, and so is PORT_UUID",
			"the container runtime must name the pod of the sandbox")
	}
	return a, nil
}

// Pod is namespace/name, or empty where CNI_ARGS name none.
func (a Args) Pod() string {
	if a.Namespace == "" && a.Name == "" {
		return ""
	}
	return a.Namespace + "/" + a.Name
}

func pairs(args string) (map[string]string, error) {
	args = strings.ReplaceAll(args, "\\\n", "") // a line continued, as the document prints them
	values := map[string]string{}
	for _, pair := range strings.Split(commaForm.ReplaceAllString(args, ";$1="), ";") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok {
			continue
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if old, twice := values[key]; twice && old != value {
			return nil, badArg(key+" is there twice, with different values", "")
		}
		values[key] = value
	}
	return values, nil
}

func parsePort(values map[string]string) (*Port, error) {
	id := strings.ToLower(values["PORT_UUID"])
	if id == "" {
		return nil, nil
	}
	if !uuidForm.MatchString(id) {
		return nil, badArg("PORT_UUID is not a UUID", id)
	}
	p := &Port{ID: id, Type: values["PORT_TYPE"]}
	if !typeForm.MatchString(p.Type) {
		return nil, badArg("PORT_TYPE is missing or no lower-case name of a type of port", p.Type)
	}
	var err error
	if p.Addresses, err = parseAddresses(values); err != nil {
		return nil, err
	}
	if p.MAC, err = parseMAC(values["MAC"]); err != nil {
		return nil, err
	}
	if p.MTU, err = parseMTU(values["MTU"]); err != nil {
		return nil, err
	}
	return p, nil
}

func parseAddresses(values map[string]string) ([]PortAddress, error) {
	var all []PortAddress
	for _, names := range []struct{ address, gateway string }{{"IPV4", "GW"}, {"IPV6", "GW6"}} {
		text := values[names.address]
		if text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix.Addr().Is4() != (names.address == "IPV4") || prefix.Addr().Is4In6() {
			return nil, badArg(names.address+" is not an address with a prefix length, as in 10.0.0.15/16 or fd00::15/64", text)
		}
		a := PortAddress{Prefix: prefix}
		if gw := values[names.gateway]; gw != "" {
			a.Gateway, err = netip.ParseAddr(gw)
			if err != nil || a.Gateway.Is4() != prefix.Addr().Is4() || a.Gateway.Zone() != "" || a.Gateway.Is4In6() {
				return nil, badArg(names.gateway+" is not an address of the same family as "+names.address, gw)
			}
		}
		all = append(all, a)
	}
	if len(all) == 0 {
		return nil, badArg("PORT_UUID comes without IPV4 or IPV6", "")
	}
	return all, nil
}

func parseMAC(text string) (net.HardwareAddr, error) {
	if text == "" {
		return nil, nil
	}
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 {
		return nil, badArg("MAC is not six hexadecimal pairs, as in fa:16:3e:00:00:01", text)
	}
	return mac, nil
}

func parseMTU(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	mtu, err := strconv.Atoi(text)
	if err != nil || mtu != 0 && (mtu < 68 || mtu > 65535) {
		return 0, badArg("MTU is not a number of bytes from 68 to 65535, or 0", text)
	}
	return mtu, nil
}

func badArg(msg, details string) error {
	return types.NewError(CodeInvalidEnvironment, fmt.Sprintf("CNI_ARGS: %s", msg), details)
}

package packet

import (
	"encoding/json"
	"net/netip"
	"strings"
)

// service is a Service and its endpoints, in the words of a test.
type service struct {
	name     string
	vip      pair // either may be empty
	ports    []port
	affinity int // seconds of sessionAffinity ClientIP; 0 for none
	backends []endpoint
}

// port is a port of a Service; target is the endpoints' port.
type port struct {
	name, proto  string
	port, target int
}

// endpoint is one address of a Service's backends.
type endpoint struct {
	addr, node string
	unready    bool
}

// webPorts are one port for each protocol, on one number.
func webPorts() []port {
	return []port{{"tcp", "TCP", 80, 8080}, {"udp", "UDP", 80, 8080}, {"sctp", "SCTP", 80, 8080}}
}

// object is a Kubernetes object or a part of one.
type object = map[string]any

// manifest renders the Service and its slices as one List; JSON is YAML.
func (s service) manifest() []byte {
	items := []object{s.object()}
	for _, family := range []int{4, 6} {
		if s.vip.of(family) != "" {
			items = append(items, s.slice(family))
		}
	}
	return list(items...)
}

func list(items ...object) []byte {
	text, err := json.MarshalIndent(object{"apiVersion": "v1", "kind": "List", "items": items}, "", " ")
	if err != nil {
		panic(err) // strings and numbers only
	}
	return text
}

func (s service) object() object {
	var vips, families []string
	var ports []object
	for family, vip := range map[string]string{"IPv4": s.vip.v4, "IPv6": s.vip.v6} {
		if vip != "" {
			vips, families = append(vips, vip), append(families, family)
		}
	}
	for _, p := range s.ports {
		ports = append(ports, object{"name": p.name, "protocol": p.proto, "port": p.port, "targetPort": p.target})
	}
	spec := object{"clusterIP": vips[0], "clusterIPs": vips, "ipFamilies": families, "ports": ports}
	if s.affinity > 0 {
		spec["sessionAffinity"] = "ClientIP"
		spec["sessionAffinityConfig"] = object{"clientIP": object{"timeoutSeconds": s.affinity}}
	}
	return object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": s.name, "namespace": "test"}, "spec": spec}
}

func (s service) slice(family int) object {
	var ports, endpoints []object
	for _, p := range s.ports {
		ports = append(ports, object{"name": p.name, "protocol": p.proto, "port": p.target})
	}
	for _, e := range s.backends {
		if netip.MustParseAddr(e.addr).Is4() == (family == 4) {
			endpoints = append(endpoints, object{
				"addresses": []string{e.addr}, "nodeName": e.node, "conditions": object{"ready": !e.unready},
			})
		}
	}
	suffix := map[int]string{4: "IPv4", 6: "IPv6"}[family]
	return object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": suffix,
		"metadata": object{
			"name": s.name + "-" + strings.ToLower(suffix), "namespace": "test",
			"labels": object{"kubernetes.io/service-name": s.name},
		},
		"ports": ports, "endpoints": endpoints,
	}
}

// nodeManifest is this node as the control plane describes it.
func nodeManifest() []byte {
	return list(object{
		"apiVersion": "v1", "kind": "Node", "metadata": object{"name": thisNode},
		"spec":   object{"podCIDR": "10.244.0.0/24", "podCIDRs": []string{"10.244.0.0/24", "fd00:10:244::/64"}},
		"status": object{"addresses": []object{{"type": "InternalIP", "address": "192.168.0.1"}}},
	})
}

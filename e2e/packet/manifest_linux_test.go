package packet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
)

// service is a Service and its endpoints, in the words of a test.
type service struct {
	name     string
	vip      pair // either may be empty
	ports    []port
	affinity int // seconds of sessionAffinity ClientIP; 0 for none
	backends []endpoint

	external pair // spec.externalIPs
	lb       pair // status.loadBalancer.ingress
	proxied  bool // ipMode of the ingress: Proxy
	nodePort int  // of every port: they differ in protocol

	internalLocal, externalLocal bool
	healthPort                   int
	ranges                       []string // spec.loadBalancerSourceRanges

	namespace   string // empty: test
	annotations annotations
	labels      map[string]string
}

// annotations are those of kube-ipvs.io, by what follows it.
type annotations map[string]string

// object is their form in a manifest; nil where there are none.
func (a annotations) object() object {
	if len(a) == 0 {
		return nil
	}
	out := object{}
	for key, value := range a {
		out["kube-ipvs.io/"+key] = value
	}
	return out
}

// port is a port of a Service; target is the endpoints' port.
type port struct {
	name, proto  string
	port, target int
}

// endpoint is one address of a Service's backends.
type endpoint struct {
	addr, node  string
	unready     bool
	terminating bool   // not ready, and still serving
	weight      string // that of its slice, the value of its annotation; empty: none
}

// webPorts are one port for each protocol, on one number.
func webPorts() []port {
	return []port{{"tcp", "TCP", 80, 8080}, {"udp", "UDP", 80, 8080}, {"sctp", "SCTP", 80, 8080}}
}

// object is a Kubernetes object or a part of one.
type object = map[string]any

// manifest renders the Service and its slices as one List; JSON is YAML.
func (s service) manifest() []byte { return list(s.items()...) }

// sliceSize is how many endpoints a control plane puts into a slice at most.
const sliceSize = 1000

func (s service) items() []object {
	items := []object{s.object()}
	for _, family := range families {
		if s.vip.of(family) == "" {
			continue
		}
		number := 0
		for _, weight := range s.weights() {
			ends := s.endpointObjects(family, weight)
			for i := 0; i == 0 || i < len(ends); i += sliceSize {
				items = append(items, s.slice(family, number, weight, ends[i:min(i+sliceSize, len(ends))]))
				number++
			}
		}
	}
	return items
}

// weights are those of slices, each once, in the order of the backends.
func (s service) weights() []string {
	var out []string
	for _, e := range s.backends {
		if !slices.Contains(out, e.weight) {
			out = append(out, e.weight)
		}
	}
	if out == nil {
		return []string{""}
	}
	return out
}

func list(items ...object) []byte {
	text, err := json.MarshalIndent(object{"apiVersion": "v1", "kind": "List", "items": items}, "", " ")
	if err != nil {
		panic(err) // strings and numbers only
	}
	return text
}

func (s service) object() object {
	var vips, names []string
	for _, family := range families {
		if vip := s.vip.of(family); vip != "" {
			vips, names = append(vips, vip), append(names, fmt.Sprintf("IPv%d", family))
		}
	}
	spec := object{
		"type": s.kind(), "clusterIP": vips[0], "clusterIPs": vips, "ipFamilies": names, "ports": s.portObjects(),
		"externalIPs": s.external.all(), "loadBalancerSourceRanges": s.ranges, "internalTrafficPolicy": policy(s.internalLocal),
	}
	if s.affinity > 0 {
		spec["sessionAffinity"] = "ClientIP"
		spec["sessionAffinityConfig"] = object{"clientIP": object{"timeoutSeconds": s.affinity}}
	}
	if s.kind() != "ClusterIP" || s.external != (pair{}) {
		spec["externalTrafficPolicy"] = policy(s.externalLocal)
	}
	if s.healthPort > 0 {
		spec["healthCheckNodePort"] = s.healthPort
	}
	meta := object{"name": s.name, "namespace": s.in(), "annotations": s.annotations.object(), "labels": s.labels}
	return object{
		"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec,
		"status": object{"loadBalancer": object{"ingress": s.ingress()}},
	}
}

// in is the namespace.
func (s service) in() string { return cmp.Or(s.namespace, "test") }

// kind is spec.type, by what the Service has.
func (s service) kind() string {
	switch {
	case s.lb != pair{}:
		return "LoadBalancer"
	case s.nodePort > 0:
		return "NodePort"
	}
	return "ClusterIP"
}

func (s service) portObjects() []object {
	var out []object
	for _, p := range s.ports {
		o := object{"name": p.name, "protocol": p.proto, "port": p.port, "targetPort": p.target}
		if s.nodePort > 0 {
			o["nodePort"] = s.nodePort
		}
		out = append(out, o)
	}
	return out
}

func (s service) ingress() []object {
	mode := "VIP"
	if s.proxied {
		mode = "Proxy"
	}
	var out []object
	for _, addr := range s.lb.all() {
		out = append(out, object{"ip": addr, "ipMode": mode})
	}
	return out
}

func policy(local bool) string {
	if local {
		return "Local"
	}
	return "Cluster"
}

// endpointObjects are those of one family in slices of one weight.
func (s service) endpointObjects(family int, weight string) []object {
	var out []object
	for _, e := range s.backends {
		if netip.MustParseAddr(e.addr).Is4() == (family == 4) && e.weight == weight {
			out = append(out, object{
				"addresses": []string{e.addr}, "nodeName": e.node,
				"conditions": object{"ready": !e.unready && !e.terminating, "serving": !e.unready, "terminating": e.terminating},
			})
		}
	}
	return out
}

func (s service) slice(family, number int, weight string, endpoints []object) object {
	said := annotations{}
	if weight != "" {
		said["weight"] = weight
	}
	var ports []object
	for _, p := range s.ports {
		ports = append(ports, object{"name": p.name, "protocol": p.proto, "port": p.target})
	}
	return object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": fmt.Sprintf("IPv%d", family),
		"metadata": object{
			"name": fmt.Sprintf("%s-ipv%d-%d", s.name, family, number), "namespace": s.in(),
			"labels": object{"kubernetes.io/service-name": s.name}, "annotations": said.object(),
		},
		"ports": ports, "endpoints": endpoints,
	}
}

// object is the node as the control plane describes it, by its address among the nodes.
func (n *node) object(internal pair) object {
	pods := podRange(n.index)
	return object{
		"apiVersion": "v1", "kind": "Node", "metadata": object{"name": n.name, "annotations": n.annotations.object()},
		"spec":   object{"podCIDR": pods.v4, "podCIDRs": pods.all()},
		"status": object{"addresses": []object{{"type": "InternalIP", "address": internal.v4}, {"type": "InternalIP", "address": internal.v6}}},
	}
}

// manifest is the node alone.
func (n *node) manifest() []byte { return list(n.object(fabAddr)) }

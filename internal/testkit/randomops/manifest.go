package randomops

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

// Writer makes random manifests with few names and addresses, so that Services collide, and with
// every field of a Service. Exceptions are settings that take time and backends that answer clients
// directly, because an address stays marked as detached for them.
type Writer struct{ *rand.Rand }

func (w Writer) one(choices ...string) string { return choices[w.IntN(len(choices))] }

func (w Writer) name() string { return w.one("a", "b", "c", "d", "e") }

// Service is a Service with a slice of its own.
func (w Writer) Service(name string) string {
	kind := w.one("ClusterIP", "ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer", "ExternalName")
	fields := []string{"type: " + kind, "clusterIPs: [" + w.clusterIPs() + "]", "ports: " + w.ports(kind)}
	fields = append(fields, w.policies()...)
	status := ""
	if kind == "LoadBalancer" {
		fields = append(fields, w.ranges()...)
		status = "status: {loadBalancer: {ingress: [" + w.ingress() + "]}}\n"
	}
	labels := w.one("", "", "", ", labels: {service.kubernetes.io/service-proxy-name: other}")
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {namespace: default, name: %s, creationTimestamp: "202%d-01-01T00:00:00Z"%s%s}
spec: {%s}
%s---
%s`, name, w.IntN(3), labels, w.annotations(), strings.Join(fields, ", "), status, w.Slice(name, name, "own"))
}

// annotations are those of a Service, none of them for most; some cannot be read.
func (w Writer) annotations() string {
	var asked []string
	for _, a := range []string{
		"scheduler: " + w.one("wlc", "mh", "sh", "lc", "best"), "scheduler-flags: " + w.one("none", "sh-port", "mh-port"),
		w.weight(), "one-packet: " + w.one(`"true"`, `"false"`, `"yes"`), "max-connections: " + w.one(`"9"`, `"9,3"`, `"3,9"`, `"0"`),
		"skip: " + w.one(`"true"`, `"false"`, `"false"`, `"yes"`),
		"forward: " + w.one("nat", "fast"), "tunnel: " + w.one("ipip", `"gue:5555"`, `"gue:0"`), "wait: long",
	} {
		if w.IntN(6) == 0 {
			asked = append(asked, "kube-ipvs.io/"+a)
		}
	}
	return ", annotations: {" + strings.Join(asked, ", ") + "}"
}

// weight is the value of a weight annotation.
func (w Writer) weight() string {
	return "weight: " + w.one(`"0"`, `"0"`, `"1"`, `"5"`, `"65535"`, `"heavy"`)
}

// weighted is the annotation of a slice or a Node; most have none.
func (w Writer) weighted() string {
	return w.one("", "", ", annotations: {kube-ipvs.io/"+w.weight()+"}")
}

func (w Writer) clusterIPs() string {
	return w.one(`"10.96.0.1"`, `"10.96.0.2"`, `"10.96.0.3"`, `"fd00:10:96::1"`,
		`"10.96.0.2", "fd00:10:96::1"`, `"10.96.0.1", "fd00:10:96::2"`)
}

// ports have NodePorts where the type has, some of them the same in two Services.
func (w Writer) ports(kind string) string {
	ports := w.one(`{name: p, port: 80@}`, `{name: p, port: 81@}`, `{name: p, port: 80@}, {name: q, port: 443}`,
		`{name: u, port: 53, protocol: UDP@}`, `{name: p, port: 80@}, {name: u, port: 53, protocol: UDP@}`,
		`{name: s, port: 90, protocol: SCTP@}`)
	nodePort := ""
	if kind == "NodePort" || kind == "LoadBalancer" && w.IntN(3) > 0 {
		nodePort = ", nodePort: " + w.one("30001", "30002", "30003")
	}
	return "[" + strings.ReplaceAll(ports, "@", nodePort) + "]"
}

// policies are the fields that any type may have.
func (w Writer) policies() (fields []string) {
	for _, f := range []string{
		"sessionAffinity: ClientIP", "internalTrafficPolicy: Local", "externalTrafficPolicy: Local",
		`externalIPs: [` + w.one(`203.0.113.1`, `203.0.113.1, "2001:db8:1::1"`, `192.0.2.1`, `10.96.0.3, 127.0.0.1`) + `]`,
	} {
		if w.IntN(3) == 0 {
			fields = append(fields, f)
		}
	}
	return fields
}

func (w Writer) ranges() []string {
	return []string{
		"loadBalancerSourceRanges: [" + w.one("", "", "10.0.0.0/8", `10.0.0.0/8, "fd00::/8"`, "192.0.2.0/24, 10.0.0.0/8, 10.1.0.0/16",
			"0.0.0.0/0, 10.0.0.0/8", "somewhere", `"2001:db8::/32"`) + "]",
		"healthCheckNodePort: " + w.one("0", "30100", "30101"),
	}
}

// ingress names addresses of load balancers, of the node and of its neighbour.
func (w Writer) ingress() string {
	list := w.one(`{ip: 203.0.113.1@}`, `{ip: 203.0.113.2@}, {ip: "2001:db8:1::2"}`, `{ip: 192.0.2.2@}`,
		`{ip: 192.0.2.9@}, {hostname: lb.example.com}`, `{ip: 203.0.113.1}, {ip: 10.96.0.2@}`)
	return strings.ReplaceAll(list, "@", w.one("", "", ", ipMode: VIP", ", ipMode: Proxy"))
}

// Slice is named after one Service and belongs to another, or to the same, which may not
// exist.
func (w Writer) Slice(name, service, suffix string) string {
	family, format := "IPv4", "10.244.%d.5"
	if w.IntN(3) == 0 {
		family, format = "IPv6", `"fd00:10:244:%d::5"`
	}
	labels := w.one("", "", "", "", "", `, service.kubernetes.io/headless: ""`)
	text := fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"+
		"metadata: {namespace: default, name: %s-%s-%s, labels: {kubernetes.io/service-name: %s%s}%s}\naddressType: %s\n"+
		"ports: [{name: p, port: %d}, {name: q, port: 8443}, {name: u, port: 5353, protocol: UDP}, {name: s, port: 9090, protocol: SCTP}]\nendpoints:\n",
		name, suffix, strings.ToLower(family), service, labels, w.weighted(), family, 8080+w.IntN(2))
	for range w.IntN(5) {
		text += w.endpoint(fmt.Sprintf(format, w.IntN(6)))
	}
	return text
}

func (w Writer) endpoint(addr string) string {
	return fmt.Sprintf("- {addresses: [%s], nodeName: %s, conditions: {ready: %t, serving: %t, terminating: %t}%s}\n",
		addr, w.one(scenario.NodeName, "node-b"), w.IntN(3) > 0, w.IntN(2) > 0, w.IntN(3) == 0,
		w.one("", "", ", hints: {forZones: [{name: east}]}", ", hints: {forZones: [{name: east}], forNodes: [{name: node-a}]}"))
}

// Nodes are this node and its neighbour, which has one of the addresses that
// Services name, or not.
func (w Writer) Nodes() string {
	return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {topology.kubernetes.io/zone: %s}%s}\n"+
		"status: {addresses: [%s]}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: node-b%s}\nstatus: {addresses: [{type: InternalIP, address: %s}]}\n",
		scenario.NodeName, w.one("east", "west"), w.weighted(),
		w.one("", "{type: InternalIP, address: 192.0.2.1}", "{type: ExternalIP, address: 192.0.2.2}"), w.weighted(), w.one("192.0.2.9", "203.0.113.2", "198.51.100.1"))
}

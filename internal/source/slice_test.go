package source_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

func showSlice(s model.Slice) string {
	out := []string{fmt.Sprintf("%s of %s, %s", s.ID, s.Service, s.Family)}
	for _, p := range s.Ports {
		out = append(out, fmt.Sprintf("port %q %d/%s", p.Name, p.Port, p.Protocol))
	}
	for _, e := range s.Endpoints {
		line := fmt.Sprintf("endpoint %s node=%q ready=%t serving=%t terminating=%t", e.Addr, e.Node, e.Ready, e.Serving, e.Terminating)
		if len(e.ZoneHints())+len(e.NodeHints()) > 0 {
			line += fmt.Sprintf(" zones=%v nodes=%v", e.ZoneHints(), e.NodeHints())
		}
		out = append(out, line)
	}
	for _, p := range s.Problems {
		out = append(out, "problem "+p)
	}
	return lines(out...)
}

func TestSlice(t *testing.T) {
	const head4 = "default/web-1 of default/web, IPv4"
	const up = ` node="" ready=true serving=true terminating=false`
	tests := []struct{ name, body, want string }{
		{"plain", "{addressType: IPv4, ports: [{name: '', port: 80}], endpoints: [{addresses: [10.0.0.1]}]}",
			lines(head4, `port "" 80/tcp`, "endpoint 10.0.0.1"+up)},
		{"IPv6", "{addressType: IPv6, endpoints: [{addresses: ['fd00::1']}]}",
			lines("default/web-1 of default/web, IPv6", "endpoint fd00::1"+up)},
		{"conditions", `{addressType: IPv4, endpoints: [
			{addresses: [10.0.0.1], conditions: {ready: false}},
			{addresses: [10.0.0.2], conditions: {ready: false, serving: true, terminating: true}},
			{addresses: [10.0.0.3], conditions: {ready: false, serving: false, terminating: false}}]}`,
			lines(head4,
				`endpoint 10.0.0.1 node="" ready=false serving=true terminating=false`,
				`endpoint 10.0.0.2 node="" ready=false serving=true terminating=true`,
				`endpoint 10.0.0.3 node="" ready=false serving=false terminating=false`)},
		{"node and hints", `{addressType: IPv4, endpoints: [
			{addresses: [10.0.0.1], nodeName: n1, hints: {forZones: [{name: a}, {name: b}], forNodes: [{name: n1}]}}]}`,
			lines(head4, `endpoint 10.0.0.1 node="n1" ready=true serving=true terminating=false zones=[a b] nodes=[n1]`)},
		{"FQDN", "{addressType: FQDN, endpoints: [{addresses: [example.org]}]}",
			lines("default/web-1 of default/web, no family", "problem addressType: FQDN: host names are not served, no endpoint is used")},
		{"no address type", "{endpoints: [{addresses: [10.0.0.1]}]}",
			lines("default/web-1 of default/web, no family", "problem addressType: missing: no endpoint is used")},
		{"unknown address type", "{addressType: IPX, endpoints: [{addresses: [10.0.0.1]}]}",
			lines("default/web-1 of default/web, no family", `problem addressType: "IPX" is not IPv4 or IPv6: no endpoint is used`)},
		{"no address", "{addressType: IPv4, endpoints: [{addresses: []}, {addresses: [10.0.0.2]}]}",
			lines(head4, "endpoint 10.0.0.2"+up, "problem endpoints[0].addresses: missing: the endpoint is not used")},
		{"two addresses", "{addressType: IPv4, endpoints: [{addresses: [10.0.0.1, 10.0.0.2]}]}",
			lines(head4, "endpoint 10.0.0.1"+up, "problem endpoints[0].addresses: 2 addresses, only the first is used")},
		{"wrong family", "{addressType: IPv4, endpoints: [{addresses: ['fd00::1']}]}",
			lines(head4, `problem endpoints[0].addresses[0]: "fd00::1" is not IPv4, the addressType of the slice`)},
		{"mapped counts as IPv4", "{addressType: IPv4, endpoints: [{addresses: ['::ffff:10.0.0.1']}]}", lines(head4, "endpoint 10.0.0.1"+up)},
		{"leading zeros", "{addressType: IPv4, endpoints: [{addresses: [010.000.000.001]}]}",
			lines(head4, "endpoint 10.0.0.1"+up, `problem endpoints[0].addresses[0]: "010.000.000.001" has leading zeros, read as 10.0.0.1`)},
		{"loopback", "{addressType: IPv4, endpoints: [{addresses: [127.0.0.1]}]}",
			lines(head4, `problem endpoints[0].addresses[0]: "127.0.0.1" is a loopback address`)},
		{"not an address", "{addressType: IPv4, endpoints: [{addresses: [web]}]}",
			lines(head4, `problem endpoints[0].addresses[0]: "web" is not an IP address`)},
		{"port without name", "{addressType: IPv4, ports: [{port: 80}]}", lines(head4, `port "" 80/tcp`)},
		{"port without number", "{addressType: IPv4, ports: [{name: a}]}", lines(head4, "problem ports[0].port: missing: the port is not used")},
		{"port 0", "{addressType: IPv4, ports: [{name: a, port: 0}]}", lines(head4, "problem ports[0].port: 0 is not a port (1-65535)")},
		{"port 70000", "{addressType: IPv4, ports: [{name: a, port: 70000}]}", lines(head4, "problem ports[0].port: 70000 is not a port (1-65535)")},
		{"port twice", "{addressType: IPv4, ports: [{name: a, port: 80}, {name: a, port: 81}, {name: a, port: 80, protocol: UDP}]}",
			lines(head4, `port "a" 80/tcp`, `port "a" 80/udp`, `problem ports[1].name: "a" is there already`)},
		{"port protocol", "{addressType: IPv4, ports: [{name: a, port: 80, protocol: GRE}]}",
			lines(head4, `problem ports[0].protocol: "GRE" is not TCP, UDP or SCTP`)},
		{"port name", "{addressType: IPv4, ports: [{name: A, port: 80}]}",
			lines(head4, `problem ports[0].name: "A" is not made of a-z, 0-9 and '-': the port is not used`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := read[discoveryv1.EndpointSlice](t, tt.body)
			in.Name, in.Labels = "web-1", map[string]string{discoveryv1.LabelServiceName: "web"}
			if diff := cmp.Diff(tt.want, showSlice(source.Slice(model.FromFile, in))); diff != "" {
				t.Errorf("slice (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSliceThatBelongsToNoService(t *testing.T) {
	const rest = "\naddressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]"
	long := strings.Repeat("x", 300)
	tests := []struct{ name, meta, want string }{
		{"no label", "{name: s}", "metadata.labels[kubernetes.io/service-name]: missing: the slice belongs to no Service"},
		{"headless", "{name: s, labels: {kubernetes.io/service-name: web, service.kubernetes.io/headless: ''}}",
			"metadata.labels[service.kubernetes.io/headless]: the slice belongs to a headless Service and is not used"},
		{"label of 300", "{name: s, labels: {kubernetes.io/service-name: " + long + "}}",
			"metadata.labels[kubernetes.io/service-name]: 300 characters, at most 63: the object is not used"},
		{"name of 300", "{name: " + long + ", labels: {kubernetes.io/service-name: web}}",
			"metadata.name: 300 characters, at most 253: the object is not used"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := source.Slice(model.FromFile, read[discoveryv1.EndpointSlice](t, "metadata: "+tt.meta+rest))
			if diff := cmp.Diff([]string{tt.want}, got.Problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if got.Service != (model.ServiceID{}) || got.Endpoints != nil {
				t.Errorf("slice of service %q with %d endpoints, want neither", got.Service, len(got.Endpoints))
			}
		})
	}
}

// TestHeadlessLabelComesAndGoes: a slice that is labelled while it is in use takes
// its endpoints back, for it names no Service any more; without the label they return.
func TestHeadlessLabelComesAndGoes(t *testing.T) {
	in := read[discoveryv1.EndpointSlice](t, `
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.1]}]`)
	ids := map[model.SliceID]bool{}
	var got []string
	for _, headless := range []bool{false, true, false} {
		delete(in.Labels, "service.kubernetes.io/headless")
		if headless {
			in.Labels["service.kubernetes.io/headless"] = ""
		}
		s := source.Slice(model.FromKube, in)
		ids[s.ID] = true
		got = append(got, fmt.Sprintf("%s: %d endpoints, %d ports", s.Service, len(s.Endpoints), len(s.Ports)))
	}
	want := []string{"default/web: 1 endpoints, 1 ports", "/: 0 endpoints, 0 ports", "default/web: 1 endpoints, 1 ports"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("service of the slice (-want +got):\n%s", diff)
	}
	if len(ids) != 1 {
		t.Errorf("the slice went by %d names, so the old version would stay", len(ids))
	}
}

func TestTriggered(t *testing.T) {
	for text, want := range map[string]string{
		"2026-01-02T03:04:05.000000006Z": "2026-01-02T03:04:05.000000006Z",
		"2026-01-02T03:04:05+01:00":      "2026-01-02T02:04:05Z",
		"yesterday":                      "0001-01-01T00:00:00Z",
		"":                               "0001-01-01T00:00:00Z",
	} {
		in := read[discoveryv1.EndpointSlice](t, `
metadata: {namespace: ns, name: web-1, labels: {kubernetes.io/service-name: web}, annotations: {endpoints.kubernetes.io/last-change-trigger-time: "`+text+`"}}
addressType: IPv4`)
		s := source.Slice(model.FromKube, in)
		if got := s.Triggered.UTC().Format(time.RFC3339Nano); got != want || len(s.Problems) > 0 {
			t.Errorf("%q: triggered %s, problems %v, want %s", text, got, s.Problems, want)
		}
	}
}

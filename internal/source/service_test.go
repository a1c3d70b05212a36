package source_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// read makes an API object of a manifest.
func read[T any](t *testing.T, manifest string) *T {
	t.Helper()
	var v T
	if err := yaml.UnmarshalStrict([]byte(manifest), &v); err != nil {
		t.Fatalf("manifest of the test: %v\n%s", err, manifest)
	}
	return &v
}

// lines prints one line for each argument that is not empty.
func lines(items ...string) string {
	var b strings.Builder
	for _, s := range items {
		if s != "" {
			b.WriteString(s + "\n")
		}
	}
	return b.String()
}

func showService(s model.Service) string {
	out := []string{fmt.Sprintf("%s %s %s", s.ID.Origin, s.ID, s.Type)}
	if len(s.ClusterIPs) > 0 {
		out = append(out, fmt.Sprintf("ips %v", s.ClusterIPs))
	}
	for _, p := range s.Ports {
		line := fmt.Sprintf("port %q %d/%s", p.Name, p.Port, p.Protocol)
		if p.NodePort != 0 {
			line += fmt.Sprintf(" node port %d", p.NodePort)
		}
		out = append(out, line)
	}
	if s.Headless {
		out = append(out, "headless")
	}
	if s.InternalLocal {
		out = append(out, "internal local")
	}
	if s.HasProxyName {
		out = append(out, "proxy "+s.ProxyName)
	}
	if s.DNS {
		out = append(out, "dns")
	}
	if s.Affinity > 0 {
		out = append(out, "affinity "+s.Affinity.String())
	}
	out = append(out, showPolicy(s.Policy)...)
	out = append(out, showExternal(s)...)
	for _, b := range s.BadAnnotations {
		out = append(out, "bad "+b)
	}
	for _, p := range s.Problems {
		out = append(out, "problem "+p)
	}
	return lines(out...)
}

func TestService(t *testing.T) {
	const head = "file default/web ClusterIP"
	const port80 = `port "" 80/tcp`
	long := strings.Repeat("x", 300)
	tests := []struct{ name, spec, want string }{
		{"plain", "{clusterIP: 10.96.0.1, ports: [{port: 80}]}", lines(head, "ips [10.96.0.1]", port80)},
		{"dual stack", "{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00::1'], ipFamilies: [IPv4, IPv6], ports: [{port: 80}]}",
			lines(head, "ips [10.96.0.1 fd00::1]", port80)},
		{"three protocols on one port", "{ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP}, {name: c, port: 53, protocol: SCTP}]}",
			lines(head, `port "a" 53/tcp`, `port "b" 53/udp`, `port "c" 53/sctp`)},
		{"no address yet", "{ports: [{port: 80}]}", lines(head, port80)},
		{"headless", "{clusterIP: None, ports: [{port: 80}]}", lines(head, port80, "headless")},
		{"headless list", "{clusterIP: None, clusterIPs: [None]}", lines(head, "headless")},
		{"headless and an address", "{clusterIPs: [None, 10.96.0.1]}",
			lines(head, "headless", `problem spec.clusterIPs[1]: "10.96.0.1" is one address too many`)},
		{"external name", "{type: ExternalName, externalName: example.org}", lines("file default/web ExternalName")},
		{"unknown type", "{type: Magic}", lines(head, `problem spec.type: "Magic" is not a type of Service, taken as ClusterIP`)},

		{"port 0", "{ports: [{port: 0}, {name: a, port: 80}]}", lines(head, `port "a" 80/tcp`, "problem spec.ports[0].port: 0 is not a port (1-65535)")},
		{"port 70000", "{ports: [{port: 80}, {name: a, port: 70000}]}", lines(head, port80, "problem spec.ports[1].port: 70000 is not a port (1-65535)")},
		{"port negative", "{ports: [{port: -1}]}", lines(head, "problem spec.ports[0].port: -1 is not a port (1-65535)")},
		{"port 65535", "{ports: [{port: 65535}]}", lines(head, `port "" 65535/tcp`)},
		{"port twice", "{ports: [{name: a, port: 80}, {name: b, port: 80}]}", lines(head, `port "a" 80/tcp`, "problem spec.ports[1].port: 80/tcp is there already")},
		{"port name twice", "{ports: [{name: a, port: 80}, {name: a, port: 81}]}", lines(head, `port "a" 80/tcp`, `problem spec.ports[1].name: "a" is there already`)},
		{"two ports without names", "{ports: [{port: 80}, {port: 81}]}", lines(head, port80, `problem spec.ports[1].name: "" is there already`)},
		{"port name of 63", "{ports: [{name: " + long[:63] + ", port: 80}]}", lines(head, `port "`+long[:63]+`" 80/tcp`)},
		{"port name of 300", "{ports: [{name: " + long + ", port: 80}]}", lines(head, "problem spec.ports[0].name: 300 characters, at most 63: the port is not used")},
		{"port name of other letters", "{ports: [{name: 'A b', port: 80}]}", lines(head, `problem spec.ports[0].name: "A b" is not made of a-z, 0-9 and '-': the port is not used`)},
		{"protocol unknown", "{ports: [{port: 80, protocol: ICMP}]}", lines(head, `problem spec.ports[0].protocol: "ICMP" is not TCP, UDP or SCTP`)},
		{"protocol in lower case", "{ports: [{port: 80, protocol: tcp}]}", lines(head, `problem spec.ports[0].protocol: "tcp" is not TCP, UDP or SCTP`)},

		{"loopback", "{clusterIP: 127.0.0.1}", lines(head, `problem spec.clusterIP: "127.0.0.1" is a loopback address`)},
		{"loopback v6", "{clusterIP: '::1'}", lines(head, `problem spec.clusterIP: "::1" is a loopback address`)},
		{"multicast", "{clusterIPs: [224.0.0.1]}", lines(head, `problem spec.clusterIPs[0]: "224.0.0.1" is a multicast address`)},
		{"multicast v6", "{clusterIPs: ['ff02::1']}", lines(head, `problem spec.clusterIPs[0]: "ff02::1" is a multicast address`)},
		{"unspecified", "{clusterIP: 0.0.0.0}", lines(head, `problem spec.clusterIP: "0.0.0.0" is the unspecified address`)},
		{"link-local", "{clusterIP: 169.254.1.1}", lines(head, `problem spec.clusterIP: "169.254.1.1" is a link-local address`)},
		{"broadcast", "{clusterIP: 255.255.255.255}", lines(head, `problem spec.clusterIP: "255.255.255.255" is the broadcast address`)},
		{"zone", "{clusterIP: 'fd00::1%eth0'}", lines(head, `problem spec.clusterIP: "fd00::1%eth0" has a zone`)},
		{"no address at all", "{clusterIP: ten}", lines(head, `problem spec.clusterIP: "ten" is not an IP address`)},
		{"long value", "{clusterIP: " + long + "}", lines(head, `problem spec.clusterIP: "`+long[:64]+`"... is not an IP address`)},
		{"mapped", "{clusterIP: '::ffff:10.96.0.1'}", lines(head, "ips [10.96.0.1]")},
		{"mapped with zeros", "{clusterIP: '::ffff:010.096.000.001'}",
			lines(head, "ips [10.96.0.1]", `problem spec.clusterIP: "::ffff:010.096.000.001" has leading zeros, read as 10.96.0.1`)},
		{"leading zeros", "{clusterIP: 010.096.000.001}",
			lines(head, "ips [10.96.0.1]", `problem spec.clusterIP: "010.096.000.001" has leading zeros, read as 10.96.0.1`)},
		{"loopback behind zeros", "{clusterIP: 0127.0.0.1}", lines(head, `problem spec.clusterIP: "0127.0.0.1" is a loopback address`)},
		{"octet too big", "{clusterIP: 010.096.000.0256}", lines(head, `problem spec.clusterIP: "010.096.000.0256" is not an IP address`)},
		{"octet empty", "{clusterIP: 10.96..1}", lines(head, `problem spec.clusterIP: "10.96..1" is not an IP address`)},
		{"second of a family", "{clusterIPs: [10.96.0.1, 10.96.0.2]}",
			lines(head, "ips [10.96.0.1]", "problem spec.clusterIPs[1]: 10.96.0.2 is a second IPv4 address, only 10.96.0.1 is used")},
		{"three", "{clusterIPs: [10.96.0.1, 'fd00::1', 10.96.0.3]}",
			lines(head, "ips [10.96.0.1 fd00::1]", `problem spec.clusterIPs[2]: "10.96.0.3" is one address too many`)},
		{"first bad, second good", "{clusterIPs: [bad, 'fd00::1']}", lines(head, "ips [fd00::1]", `problem spec.clusterIPs[0]: "bad" is not an IP address`)},
		{"single differs from list", "{clusterIP: 10.96.0.9, clusterIPs: [10.96.0.1]}",
			lines(head, "ips [10.96.0.1]", `problem spec.clusterIP: "10.96.0.9" differs from spec.clusterIPs[0], which is used`)},
		{"families contradict", "{clusterIPs: [10.96.0.1], ipFamilies: [IPv6]}",
			lines(head, "ips [10.96.0.1]", `problem spec.ipFamilies[0]: "IPv6", but the address is 10.96.0.1`)},
		{"family without address", "{clusterIPs: [10.96.0.1], ipFamilies: [IPv4, IPv6]}",
			lines(head, "ips [10.96.0.1]", `problem spec.ipFamilies[1]: "IPv6" without an address in spec.clusterIPs[1]`)},

		{"affinity default", "{sessionAffinity: ClientIP}", lines(head, "affinity 3h0m0s")},
		{"affinity empty config", "{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {}}}", lines(head, "affinity 3h0m0s")},
		{"affinity set", "{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86400}}}", lines(head, "affinity 24h0m0s")},
		{"affinity 0", "{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}}",
			lines(head, "affinity 3h0m0s", "problem spec.sessionAffinityConfig.clientIP.timeoutSeconds: 0 is not within 1-86400, taken as 10800")},
		{"affinity negative", "{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: -5}}}",
			lines(head, "affinity 3h0m0s", "problem spec.sessionAffinityConfig.clientIP.timeoutSeconds: -5 is not within 1-86400, taken as 10800")},
		{"affinity too big", "{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}}",
			lines(head, "affinity 3h0m0s", "problem spec.sessionAffinityConfig.clientIP.timeoutSeconds: 86401 is not within 1-86400, taken as 10800")},
		{"affinity none", "{sessionAffinity: None, sessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}}", lines(head)},
		{"affinity unknown", "{sessionAffinity: Cookie}", lines(head, `problem spec.sessionAffinity: "Cookie" is not None or ClientIP, taken as None`)},
		{"internal local", "{internalTrafficPolicy: Local}", lines(head, "internal local")},
		{"internal cluster", "{internalTrafficPolicy: Cluster}", lines(head)},
		{"internal unknown", "{internalTrafficPolicy: Near}", lines(head, `problem spec.internalTrafficPolicy: "Near" is not Cluster or Local, taken as Cluster`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := read[corev1.Service](t, "metadata: {name: web}\nspec: "+tt.spec)
			if diff := cmp.Diff(tt.want, showService(source.Service(model.FromFile, in))); diff != "" {
				t.Errorf("service (-want +got):\n%s", diff)
			}
		})
	}
}

func TestServiceMeta(t *testing.T) {
	long := strings.Repeat("x", 300)
	const spec = "\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}"
	const used = "ips [10.96.0.1]\nport \"\" 80/tcp"
	tests := []struct{ name, meta, want string }{
		{"namespace", "{namespace: shop, name: web}", lines("kube shop/web ClusterIP", used)},
		{"no namespace", "{name: web}", lines("kube default/web ClusterIP", used)},
		{"proxy name", "{name: web, labels: {service.kubernetes.io/service-proxy-name: cilium}}", lines("kube default/web ClusterIP", used, "proxy cilium")},
		{"DNS of the cluster", "{name: dns, namespace: kube-system, labels: {k8s-app: kube-dns}}", lines("kube kube-system/dns ClusterIP", used, "dns")},
		{"a tenant's Service with the label of DNS", "{name: web, labels: {k8s-app: kube-dns}}", lines("kube default/web ClusterIP", used)},
		{"empty proxy name", "{name: web, labels: {service.kubernetes.io/service-proxy-name: ''}}", lines("kube default/web ClusterIP", used, "proxy ")},
		{"name of 63", "{name: " + long[:63] + "}", lines("kube default/"+long[:63]+" ClusterIP", used)},
		{"name of 300", "{name: " + long + "}", lines("kube default/"+long+" ClusterIP",
			"problem metadata.name: 300 characters, at most 63: the object is not used")},
		{"namespace of 300", "{name: web, namespace: " + long + "}", lines("kube "+long+"/web ClusterIP",
			"problem metadata.namespace: 300 characters, at most 63: the object is not used")},
		{"no name", "{namespace: shop}", lines("kube shop/ ClusterIP", "problem metadata.name: missing: the object is not used")},
		{"name with a line break", `{name: "a\nb"}`, lines("kube default/a\nb ClusterIP",
			`problem metadata.name: "a\nb" is not made of a-z, 0-9 and '-': the object is not used`)},
		{"name with dots", "{name: a.b}", lines("kube default/a.b ClusterIP",
			`problem metadata.name: "a.b" is not made of a-z, 0-9 and '-': the object is not used`)},
		{"both bad", "{name: -a, namespace: B}", lines("kube B/-a ClusterIP",
			`problem metadata.namespace: "B" is not made of a-z, 0-9 and '-': the object is not used`,
			`problem metadata.name: "-a" is not made of a-z, 0-9 and '-': the object is not used`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := read[corev1.Service](t, "metadata: "+tt.meta+spec)
			if diff := cmp.Diff(tt.want, showService(source.Service(model.FromKube, in))); diff != "" {
				t.Errorf("service (-want +got):\n%s", diff)
			}
		})
	}
}

func TestServiceKeepsItsAge(t *testing.T) {
	in := read[corev1.Service](t, "metadata: {name: web, creationTimestamp: '2024-01-02T03:04:05Z'}")
	want := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	if got := source.Service(model.FromKube, in).Created; !got.Equal(want) {
		t.Errorf("created %v, want %v", got, want)
	}
	if got := source.Service(model.FromFile, &corev1.Service{}).Created; !got.IsZero() {
		t.Errorf("created %v without a timestamp, want the zero time", got)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	in := &corev1.Service{Spec: corev1.ServiceSpec{Ports: make([]corev1.ServicePort, 5000)}}
	in.Name = "web"
	got := source.Service(model.FromFile, in).Problems
	if len(got) != 17 || got[16] != "and 4984 more" {
		t.Errorf("%d problems, the last %q; want 16 and the count of the rest", len(got), got[len(got)-1])
	}
}

package packet

import (
	"regexp"
	"strings"
	"testing"
)

// rich are manifests with something of everything that a plan shows.
func rich(w *world) []service {
	unready := endpoints(w.pod3)
	for i := range unready {
		unready[i].unready = true
	}
	all := numberedService(1)
	all.backends, all.ranges, all.healthPort = endpoints(w.pod1, w.remote1), only(w.outside.addr, fabAddr), healthPort
	all.internalLocal, all.externalLocal = true, true
	far := numberedService(2)
	far.backends, far.externalLocal = endpoints(w.remote1), true
	spread := numberedService(3)
	spread.backends, spread.external = endpoints(w.pod1, w.remote1), otherAddr
	return []service{
		all, far, spread,
		{name: "web", vip: pair{"10.96.0.20", "fd00:96::20"}, ports: webPorts(), backends: append(endpoints(w.pod1, w.remote1), unready...)},
		{name: "sticky", vip: pair{"10.96.0.21", "fd00:96::21"}, ports: webPorts(), affinity: 600, backends: endpoints(w.pod2, w.remote2)},
		{name: "six", vip: pair{v6: "fd00:96::22"}, ports: webPorts()[:1], backends: endpoints(w.pod1)},
		{name: "empty", vip: pair{v4: "10.96.0.23"}, ports: webPorts()},
	}
}

// TestPlanIsWhatTheKernelHas compares what the plan verb prints with what the tools print of a node that runs on the same
// manifests and flags, under settings that change rows.
func TestPlanIsWhatTheKernelHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tt := range []struct {
		name  string
		flags []string
	}{
		{"round robin in a cluster range", []string{"--cluster-cidr", clusters}},
		{"maglev, all masqueraded, another bit", []string{"--ipvs-scheduler", "mh", "--masquerade-all", "--iptables-masquerade-bit", "20"}},
		{"source hashing by node range", []string{"--ipvs-scheduler", "sh", "--detect-local-mode", "NodeCIDR"}},
		{"bridge", []string{"--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "cni0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newAgent(t, w.node, tt.flags...)
			n.writeFile(t, "nodes.yaml", w.nodes())
			n.write(t, rich(w)...)
			n.start(t)
			same(t, "kernel", n.planned(t), ours(w.node.look(t, "nft")))
		})
	}
}

// planned reads the plan into the form of a view.
func (n *proxy) planned(t *testing.T) view {
	t.Helper()
	out, err := n.verb("plan", "--node-address", strings.Join(n.addresses(), ","), "--rules", "iptables") // the words of a view
	if err != nil {
		t.Fatal(err)
	}
	v := view{}
	kind := ""
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch line {
		case "# servers", "# sets", "# addresses":
			kind = line[2:]
		case "# ip", "# ip6":
			kind = map[string]string{"# ip": "rules4", "# ip6": "rules6"}[line]
		case "# rules", "":
		default:
			v[kind] = append(v[kind], line)
		}
	}
	var addresses []string
	for _, line := range v["addresses"] {
		if planAddress.MatchString(line) { // how captured addresses are routed is in no view
			addresses = append(addresses, planAddress.ReplaceAllString(line, "1: $2 inet $1"))
		}
	}
	delete(v, "addresses")
	if len(addresses) > 0 {
		v["addresses"] = addresses
	}
	for kind, lines := range v {
		v[kind] = normal(kind, lines)
	}
	return v
}

// planAddress is a line such as "ip addr add 10.96.0.10/32 dev kube-ipvs0".
var planAddress = regexp.MustCompile(`^ip addr add (\S+) dev (\S+).*$`)

// ours are the lines of a view that a plan speaks of.
func ours(v view) view {
	out := view{}
	for _, kind := range []string{"servers", "sets"} {
		if _, looked := v[kind]; looked {
			out[kind] = v[kind]
		}
	}
	for _, kind := range []string{"rules4", "rules6", "addresses"} {
		for _, line := range v[kind] {
			if strings.Contains(line, "KUBE-") || strings.HasPrefix(line, "kube-ipvs0 ") {
				out[kind] = append(out[kind], line)
			}
		}
	}
	return out
}

// TestPlanCanBeReplayed passes a plan to the tools whose format it has, on a node where no agent
// ever ran. The kernel is the same, and an agent that starts there writes nothing.
func TestPlanCanBeReplayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, rich(w)...)
	replay := func(kind, program string, args ...string) {
		t.Helper()
		out, err := n.verb("plan", "--show", kind, "--node-address", strings.Join(n.addresses(), ","))
		if err == nil {
			_, err = w.node.feed(out, program, args...)
		}
		if err != nil {
			t.Fatalf("replay %s: %v", kind, err)
		}
	}
	w.node.shell(t, "ip link add kube-ipvs0 type dummy")
	replay("sets", "ipset", "restore")
	replay("rules", "sh", "-ec", `tee /run/rules >/dev/null
		sed -n '/^# ip$/,/^# ip6$/p' /run/rules | iptables-nft-restore --noflush
		sed -n '/^# ip6$/,$p' /run/rules | ip6tables-nft-restore --noflush`)
	replay("servers", "ipvsadm", "-R")
	replay("addresses", "sh", "-e")
	if s := n.start(t); s.Cycles != 0 {
		t.Logf("the kernel after the replay wanted %v", s.Written)
		for table, rows := range s.Written {
			// The order of jumps is the only thing that the text of iptables-save cannot carry.
			if table != "jumps" && rows > 0 {
				t.Errorf("%d rows of %s written after a replay, want none", rows, table)
			}
		}
	}
}

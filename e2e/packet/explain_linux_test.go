package packet

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestExplainNamesTheCause has Services that do not work, each for another reason, and damage in
// the kernel by another process. The first three lines of the answer name the cause. The damage is
// done again where it is repaired before the question.
func TestExplainNamesTheCause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := service{name: "web", vip: pair{v4: "10.96.0.20"}, ports: webPorts()[:1], backends: endpoints(w.pod1, w.remote1)}
	far := service{name: "far", vip: pair{v4: "10.96.0.21"}, lb: pair{v4: "198.18.3.1"}, ports: webPorts()[:1], externalLocal: true, backends: endpoints(w.remote1)}
	narrow := service{name: "narrow", vip: pair{v4: "10.96.0.22"}, lb: pair{v4: "198.18.3.2"}, ports: webPorts()[:1], ranges: []string{"203.0.113.0/24"}, backends: endpoints(w.pod1)}
	empty := service{name: "empty", vip: pair{v4: "10.96.0.23"}, ports: webPorts()[:1]}
	late := service{name: "web-late", vip: pair{v4: "10.96.0.20"}, ports: webPorts()[:1], backends: endpoints(w.pod2)}
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, web, far, narrow, empty, late)
	n.start(t)
	for _, tt := range []struct {
		name, damage string
		args         []string
		want         string
	}{
		{"all is well", "", []string{"test/web"}, "all is well: test/web is served at 1 frontend, 2 of 2 endpoints take new connections, and the kernel has all of it"},
		{"no endpoints", "", []string{"test/empty"}, "no endpoints: clients are refused"},
		{"Local without local endpoint", "", []string{"198.18.3.1:80", "--from", "203.0.113.1"}, "externalTrafficPolicy is Local and no endpoint"},
		{"refused by source range", "", []string{"198.18.3.2:80/tcp", "--from", "192.0.2.7"}, "192.0.2.7 is in none of loadBalancerSourceRanges (203.0.113.0/24)"},
		{"VIP conflict", "", []string{"test/web-late"}, "10.96.0.20:80/tcp belongs to test/web"},
		{"orphaned server on the VIP", "ipvsadm -A -t 10.96.0.20:99 -s rr", []string{"10.96.0.20"}, "orphaned virtual server -t 10.96.0.20:99 in the kernel"},
		{"wrong scheduler", "ipvsadm -D -t 10.96.0.20:99; ipvsadm -E -t 10.96.0.20:80 -s wlc", []string{"test/web"}, `instead of "-A -t 10.96.0.20:80 -s rr"`},
		{"flushed chain", "ipvsadm -E -t 10.96.0.20:80 -s rr; iptables-nft -t nat -F KUBE-SERVICES", []string{"test/web"}, "chain ip nat KUBE-SERVICES lacks 10 of 10 rules in the kernel"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.damage == "" {
				n.must(t, n.explains("equal: the kernel has all desired rows", tt.want, tt.args))
				return
			}
			defer w.node.again(t, tt.damage)()
			poll(t, "the cause to be named", settleTimeout, func() error { return n.explains("@@ ", tt.want, tt.args) })
		})
	}
	n.kill(t)
	out, err := n.verb("explain", "10.96.0.20:80")
	if want := "the kernel has 1 virtual server for 10.96.0.20:80, with 2 destinations"; err == nil || !strings.Contains(out, want) {
		t.Errorf("without an agent: error %v, no %q in\n%s", err, want, out)
	}
}

// explains reports whether diff begins as it should and explain prints what it should in the first three lines.
func (n *proxy) explains(diff, want string, args []string) error {
	if err := n.differs(diff); err != nil {
		return err
	}
	out, err := n.verb("explain", args...)
	if well := strings.HasPrefix(want, "all is well"); (err == nil) != well {
		return errors.Join(fmt.Errorf("explain succeeds: %t, want %t of\n%s", !well, well, out), err)
	}
	lines := strings.SplitAfterN(out, "\n", 4)
	if head := strings.Join(lines[:min(3, len(lines))], ""); !strings.Contains(head, want) {
		return fmt.Errorf("no %q in the first lines of\n%s", want, out)
	}
	return nil
}

// differs compares what is wanted with the kernel, as the agent tells it and as the manifests do: they agree.
func (n *proxy) differs(begins string) error {
	for _, args := range [][]string{n.flags, lacking(n.flags, "--source-dir")} {
		out, err := n.try(program(), append([]string{"diff"}, args...)...)
		if !strings.HasPrefix(out, begins) || (err == nil) != strings.HasPrefix(begins, "equal") {
			return errors.Join(fmt.Errorf("no %q, with its exit status, from diff:\n%s", begins, out), err)
		}
	}
	return nil
}

// lacking leaves a flag out, with its value.
func lacking(flags []string, name string) []string {
	var out []string
	for i := 0; i < len(flags); i++ {
		if flags[i] == name {
			i++
			continue
		}
		out = append(out, flags[i])
	}
	return out
}

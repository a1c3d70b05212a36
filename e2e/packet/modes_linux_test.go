package packet

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/load"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// perSecond are the new connections of each client.
const perSecond = 20

// steady starts clients of a Service, new ones all the time and some that hold on: one that is not masqueraded, one that is, and
// the node itself.
func (w *world) steady(t *testing.T, to pair) []*load.Run {
	t.Helper()
	var runs []*load.Run
	for i, from := range []*pod{w.visitor, w.outside, w.host()} {
		addr := to.of(families[i%2])
		profile := load.Profile{To: netip.MustParseAddrPort(hostPort(addr, 80)), New: perSecond, Long: 5, Every: time.Second}
		if from.name != "host" {
			profile.Sources = []netip.Addr{from.source(addr)}
		}
		runs = append(runs, from.load(t, profile))
	}
	return runs
}

// settled stops the clients: none of their new connections failed, and of those held open so many live.
func settled(t *testing.T, runs []*load.Run, live int) {
	t.Helper()
	for _, run := range runs {
		got, err := run.Stop()
		t.Logf("figure: of %d new connections %d failed, the slowest took %s; of %d held open %d live",
			got.Started, got.Failures(), got.Worst().Round(time.Millisecond), len(got.Long.Conns), got.Long.Alive)
		if err != nil || got.Failures() > 0 || got.Long.Alive < live {
			t.Errorf("%v\n%s", err, report(got))
		}
	}
}

// fromVIP stops the clients of the node itself. While a service address is bound, these clients use
// that address as source, so open connections are cut when it is removed. At most these are the
// ones of one moment, which are fewer than begin in a second.
func fromVIP(t *testing.T, run *load.Run) {
	t.Helper()
	got, err := run.Stop()
	t.Logf("figure: of %d new connections of the node itself %d failed, which the address took along", got.Started, got.Failures())
	if err != nil || got.Failures() > perSecond {
		t.Errorf("%v\n%s", err, report(got))
	}
}

// inMode waits until the agent carries Services in a mode, with nothing left to write.
func (n *proxy) inMode(t *testing.T, mode string) agent.Status {
	t.Helper()
	return n.settle(t, "be in "+mode+" mode", func(s agent.Status) bool { return s.Ready && s.Failures == 0 && s.Mode == mode })
}

// TestModeSwitch: the agent starts again with the other mode, there and back. Clients of the node
// do not notice it. Connections over IPVS are cut when the drain time is over; connections over
// rules continue.
func TestModeSwitch(t *testing.T) {
	for _, iptables := range []string{"nft", "legacy"} {
		t.Run(iptables, func(t *testing.T) {
			w := newWorld(t)
			n := newAgent(t, w.node, "--cluster-cidr", clusters, "--iptables-backend", iptables, "--drain", "2s")
			n.writeFile(t, "nodes.yaml", w.nodes())
			web := w.web(t)
			n.write(t, web)
			n.start(t)
			runs := w.steady(t, web.vip)
			more(t, runs[0], 20)
			if _, err := n.stop(t); err != nil {
				t.Errorf("SIGTERM: %v", err)
			}
			n.start(t, "--proxy-mode", "iptables")
			n.inMode(t, "iptables")
			poll(t, "what ipvs mode left to be gone", settleTimeout, func() error {
				left := n.run(t, "sh", "-c", "ipvsadm -Sn; ipset list -n; ip -o link show dev kube-ipvs0 2>/dev/null; iptables-"+iptables+"-save | grep KUBE-IPVS || true")
				if strings.TrimSpace(left) != "" {
					return fmt.Errorf("left:\n%s", left)
				}
				return nil
			})
			more(t, runs[0], 20)
			settled(t, runs[:2], 0)
			fromVIP(t, runs[2])

			runs = w.steady(t, web.vip)
			more(t, runs[0], 20)
			if _, err := n.stop(t); err != nil {
				t.Errorf("SIGTERM: %v", err)
			}
			n.start(t)
			n.inMode(t, "ipvs")
			more(t, runs[0], 20)
			settled(t, runs, 5)
			if left := n.run(t, "sh", "-c", "iptables-"+iptables+"-save | grep -E 'KUBE-(SVC|SEP|EXT|FW|SVL)-' || true"); left != "" {
				t.Errorf("rules of iptables mode are left:\n%s", left)
			}
		})
	}
}

// TestIPVSAppears: a kernel without IPVS gets it while the agent carries Services with rules. The agent ends, the next one runs
// ipvs mode, and clients that connect meanwhile notice nothing.
func TestIPVSAppears(t *testing.T) {
	if _, err := os.Stat("/proc/net/ip_vs"); err == nil {
		t.Skip("this kernel has IPVS already: the stage contracts of make test removes the modules first")
	}
	// It cannot be loaded, neither by the agent nor by the kernel on its behalf.
	const barred = "/etc/modprobe.d/no-ipvs.conf"
	if err := os.WriteFile(barred, []byte("install ip_vs /bin/false\ninstall ip_vs_rr /bin/false\n"), 0o644); err != nil {
		t.Skipf("modules cannot be kept away from this kernel: %v", err)
	}
	defer os.Remove(barred)

	w := buildWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.writeFile(t, "nodes.yaml", w.nodes())
	web := w.web(t)
	n.write(t, web)
	n.start(t)
	n.inMode(t, "iptables")
	if !strings.Contains(n.output.String(), "falling back to iptables mode") {
		t.Error("the agent does not say that it fell back")
	}
	runs := w.steady(t, web.vip)
	more(t, runs[0], 20)
	if err := os.Remove(barred); err != nil {
		t.Fatal(err)
	}
	n.run(t, "modprobe", "ip_vs")
	if err := n.wait(t); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("the agent ends with %v, want exit status 1", err)
	}
	more(t, runs[0], 20)
	n.start(t) // as its supervisor would
	n.inMode(t, "ipvs")
	more(t, runs[0], 20)
	settled(t, runs, 5)
	if got := n.run(t, "ipvsadm", "-Ln"); !strings.Contains(got, web.vip.v4+":80 rr") {
		t.Errorf("no virtual server of the Service:\n%s", got)
	}
	if left := n.run(t, "sh", "-c", "iptables-nft-save | grep -E 'KUBE-(SVC|SEP|EXT|FW|SVL)-' || true"); left != "" {
		t.Errorf("rules of iptables mode are left:\n%s", left)
	}
}

package scenarios_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

var seed = flag.Uint64("seed", 0, "seed of TestRandomChanges; 0 takes new ones")

// TestRandomChanges makes changes, restarts, crashes, faults and damage at
// random. Whenever it stops for a moment the kernel must be what a fresh compile
// of the manifests says: the agent has no memory that matters.
func TestRandomChanges(t *testing.T) {
	randomChanges(t, modeFlags["ipvs"], damages["ipvs"])
}

// TestRandomChangesIPTables is the same in iptables mode.
func TestRandomChangesIPTables(t *testing.T) {
	randomChanges(t, modeFlags["iptables"], damages["iptables"])
}

// modeFlags are what agents of each mode are started with, one of them in each run.
var modeFlags = map[string][]string{
	"ipvs": {
		"", "--cluster-cidr=10.244.0.0/16 --masquerade-all", "--nodeport-addresses=primary",
		"--nodeport-addresses=192.0.2.2/32 --ipvs-scheduler=sh", "--external-ip-allowed-cidrs=203.0.113.0/24",
		"--vip-binding=route --service-cidrs=10.96.0.0/16,fd00:10:96::/112",
	},
	"iptables": {
		"--proxy-mode=iptables", "--proxy-mode=iptables --cluster-cidr=10.244.0.0/16", "--proxy-mode=iptables --masquerade-all",
		"--proxy-mode=iptables --nodeport-addresses=192.0.2.2/32 --cluster-cidr=10.244.0.0/16",
		"--proxy-mode=iptables --iptables-localhost-nodeports",
	},
}

func randomChanges(t *testing.T, flags, damages []string) {
	for i := range 6 {
		s := *seed
		if s == 0 {
			s = rand.Uint64()
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			t.Logf("repeat with -run '%s' -seed=%d", t.Name(), s)
			w := newWorld(t, s, flags, damages)
			for range 25 {
				for range 1 + w.r.IntN(12) {
					w.step()
				}
				w.calm()
			}
		})
	}
}

// world is a node whose manifests and kernel change at random.
type world struct {
	writer
	t     *testing.T
	dir   string
	node  *scenario.Fakes
	start scenario.Start
	bad   map[string]bool // files that cannot be read
	// damages are commands that somebody else on the node might give.
	damages []string
	done    []string // what happened since the last calm
}

func newWorld(t *testing.T, seed uint64, flags, damages []string) *world {
	work := t.TempDir()
	w := &world{
		writer: writer{rand.New(rand.NewPCG(seed, 1))}, t: t, dir: filepath.Join(work, "manifests"), bad: map[string]bool{}, damages: damages,
	}
	w.start = scenario.Start{Audit: true, Flags: strings.Fields(w.one(flags...))}
	if err := os.Mkdir(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// An agent that starts on an empty directory would wait; see the scenario
	// empty-directory-keeps-kernel.
	w.put("anchor.yaml", "apiVersion: v1\nkind: Service\nmetadata: {namespace: kube-system, name: anchor}\nspec: {clusterIP: None}\n")
	w.node = scenario.NewFakes(work)
	t.Cleanup(w.node.Close)
	w.must(w.node.Start(w.start))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// step does one thing.
func (w *world) step() {
	switch n := w.r.IntN(100); {
	case n < 41:
		w.say("service", func() { n := w.name(); w.put("service-"+n+".yaml", w.service(n)) })
	case n < 51:
		w.say("slice", func() { w.put("slice-"+w.name()+".yaml", w.slice(w.name(), w.name())) })
	case n < 59:
		w.say("remove", w.removeFile)
	case n < 63:
		w.say("bad file", w.spoilFile)
	case n < 71:
		w.say("node", func() { w.put("node.yaml", w.nodes()) })
	case n < 74:
		w.say("host", w.changeHost)
	case n < 78:
		w.say("kill", func() { w.must(w.node.Kill()); w.must(w.node.Start(w.start)) })
	case n < 82:
		w.say("stop", func() { w.must(w.node.Stop()); w.rebind(); w.must(w.node.Start(w.start)) })
	case n < 92:
		w.say("fault", w.fault)
	default:
		w.say("damage", w.damage)
	}
}

// rebind changes between addresses and routes, where ranges are known.
func (w *world) rebind() {
	if at := slices.IndexFunc(w.start.Flags, func(f string) bool { return strings.HasPrefix(f, "--vip-binding=") }); at >= 0 {
		w.start.Flags[at] = "--vip-binding=" + w.one("address", "route")
		w.done = append(w.done, w.start.Flags[at])
	}
}

func (w *world) say(what string, do func()) {
	w.done = append(w.done, what)
	do()
	if w.r.IntN(2) == 0 { // let the loop come round, or not
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = w.node.Status(ctx) // that it answers is not the point here
	}
}

// calm ends what stands in the way and waits for the kernel to be as planned.
func (w *world) calm() {
	w.node.Heal()
	for name := range w.bad {
		w.must(os.Remove(filepath.Join(w.dir, name)))
	}
	clear(w.bad)
	interval, deadline := w.node.Pace()
	for until := time.Now().Add(deadline); ; time.Sleep(interval) {
		diff, err := scenario.Differ(w.node, w.start)
		if err == nil && diff == "" {
			w.done = nil
			return
		}
		if time.Now().After(until) {
			w.t.Fatalf("after %s: %v\n%s\n%s", strings.Join(w.done, ", "), err, diff, tail(w.node.Log()))
		}
	}
}

// put replaces a file in one step.
func (w *world) put(name, text string) {
	hidden := filepath.Join(w.dir, ".new")
	w.must(os.WriteFile(hidden, []byte(text), 0o644))
	w.must(os.Rename(hidden, filepath.Join(w.dir, name)))
	delete(w.bad, name)
}

// changeHost gives the machine other addresses; one of them is wanted by Services,
// too, and one belongs to another Node at times.
func (w *world) changeHost() {
	var addrs []netip.Addr
	for _, a := range []string{"192.0.2.1", "192.0.2.2", "2001:db8::1"} {
		if w.r.IntN(2) == 0 {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
	}
	w.must(w.node.Host(addrs))
}

// file is one of the manifests, less the anchor; empty if there is none.
func (w *world) file() string {
	found, err := filepath.Glob(filepath.Join(w.dir, "s*.yaml"))
	w.must(err)
	if len(found) == 0 {
		return ""
	}
	return filepath.Base(w.one(found...))
}

func (w *world) removeFile() {
	if name := w.file(); name != "" {
		w.must(os.Remove(filepath.Join(w.dir, name)))
		delete(w.bad, name)
	}
}

func (w *world) spoilFile() {
	if name := w.file(); name != "" {
		w.put(name, "kind: [")
		w.bad[name] = true
	}
}

func (w *world) fault() {
	room := scenario.Rooms()[w.r.IntN(len(scenario.Rooms()))]
	if w.r.IntN(4) == 0 {
		w.must(w.node.Fault(room, []string{"always"}))
		return
	}
	w.must(w.node.Fault(room, []string{"nth", fmt.Sprint(1 + w.r.IntN(6))}))
}

// damages are what happens to the kernel of each mode.
var damages = map[string][]string{
	"ipvs": {
		"ipvsadm -D -t 10.96.0.1:80", "ipvsadm -C", "ipvsadm -E -t 10.96.0.2:80 -s lc",
		"ipvsadm -a -t 10.96.0.1:80 -r 10.9.9.9:80 -m", "ipvsadm -d -t 10.96.0.1:80 -r 10.244.1.5:8080",
		"ipvsadm -E -t 192.0.2.1:30001 -s lc", "ipvsadm -D -t 192.0.2.2:30001", "ipvsadm -D -u 203.0.113.1:53",
		"ipset flush KUBE-LOAD-BALANCER-FW", "ipset flush KUBE-LOAD-BALANCER-SOURCE-CIDR", "ipset flush KUBE-NO-LOCAL",
		"ipset flush KUBE-DETOUR", "ipset add KUBE-NODE-PORT-IPS 10.9.9.9", "ipset add KUBE-NODE-PORT-LOCAL-TCP 999",
		"iptables -t nat -F KUBE-DETOUR-TO", "iptables -t mangle -F", "ip addr del 203.0.113.1/32 dev kube-ipvs0",
		"ipset flush KUBE-CLUSTER-IP", "ipset add KUBE-CLUSTER-IP 10.9.9.9,tcp:80", "ipset del KUBE-IPVS-IPS 10.96.0.2",
		"iptables -t nat -F", "iptables -t nat -F KUBE-SERVICES", "ip6tables -t filter -F KUBE-IPVS-FILTER",
		"ip addr del 10.96.0.1/32 dev kube-ipvs0", "ip addr add 10.96.0.3/32 dev kube-ipvs0", "ip link del kube-ipvs0",
		"ip route del local 10.96.0.0/16 dev lo proto 73", "ip route add local 10.97.0.0/16 dev lo proto 73",
	},
	"iptables": {
		"iptables -t nat -F", "ip6tables -t nat -F", "iptables -t filter -F", "ip6tables -t filter -F", "iptables -t mangle -X KUBE-PROXY-CANARY",
		"iptables -t nat -F KUBE-SERVICES", "iptables -t nat -F KUBE-NODEPORTS", "iptables -t filter -F KUBE-EXTERNAL-SERVICES",
		"iptables -t filter -F KUBE-PROXY-FIREWALL", "iptables -t nat -N KUBE-SEP-AAAAAAAAAAAAAAAA", "iptables -t nat -N KUBE-SVC-AAAAAAAAAAAAAAAA",
		"iptables -t nat -A KUBE-SERVICES -p tcp -j RETURN", "iptables -t nat -A KUBE-SERVICES -d 10.9.9.9/32 -j KUBE-MARK-MASQ",
		"iptables -t nat -A KUBE-NODEPORTS -p udp -j KUBE-MARK-MASQ", "ip6tables -t filter -A KUBE-SERVICES -p udp -j DROP",
		"iptables -t nat -A KUBE-POSTROUTING -j RETURN", "iptables -t filter -F KUBE-FORWARD", "iptables -t nat -F KUBE-MARK-MASQ",
	},
}

// damage does to the kernel what somebody else on the node might.
func (w *world) damage() {
	tool := w.one(w.damages...)
	if slices.Contains(marks, tool) && w.marksTaken(tool) >= len(marks)-1 {
		return
	}
	w.done = append(w.done, tool)
	_ = w.node.Tool(strings.Fields(tool)) // what it means to damage may not be there
}

// marks are the damages that take away what tells whose a virtual server is. One
// of its marks at least has to be left: without any nobody can know it again.
var marks = []string{"ipset flush KUBE-CLUSTER-IP", "ipset del KUBE-IPVS-IPS 10.96.0.2", "ip link del kube-ipvs0"}

// marksTaken counts the marks, other than the given one, taken since the last calm. What
// is routed has no address on the device for one.
func (w *world) marksTaken(other string) (n int) {
	if slices.ContainsFunc(w.start.Flags, func(f string) bool { return strings.HasPrefix(f, "--service-cidrs=") }) {
		n = 1
	}
	for _, m := range marks {
		if m != other && slices.Contains(w.done, m) {
			n++
		}
	}
	return n
}

// tail is the end of a log.
func tail(log string) string { return log[max(0, len(log)-6000):] }

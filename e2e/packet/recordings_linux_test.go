package packet

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// recordings is where what the verbs print is kept, for readers. KUBE_IPVS_E2E_RECORD is a directory to write them to instead of
// comparing them.
const recordings = "../recordings"

// recorded are the verbs with their arguments, by the name of the recording. NEXT is a directory
// of other manifests, and two quotes are an argument that is empty.
var recorded = []struct{ name, args string }{
	{"check", "check"},
	{"show-status", "show status"},
	{"show-services", "show services"},
	{"show-frontends", "show frontends"},
	{"show-backends", "show backends"},
	{"show-pending", "show pending"},
	{"show-conflicts", "show conflicts"},
	{"show-draining", "show draining"},
	{"show-kernel-servers", "show kernel servers --vip 10.96.0.20"},
	{"show-kernel-sets", "show kernel sets KUBE-CLUSTER-IP"},
	{"show-kernel-addresses", "show kernel addresses"},
	{"explain-service", "explain shop/cart"},
	{"explain-address", "explain 198.51.100.20:80 --from 192.0.2.200"},
	{"top", "top --once"},
	{"trace", "trace 198.51.100.20:80 --for 2s --packets 5000"},
	{"show-kernel-rules", "show kernel rules KUBE-NODE-PORT"},
	{"plan", "plan --hostname-override node-a --show servers,addresses"},
	{"plan-diff", "plan --hostname-override node-a --diff-against NEXT"},
	{"completion", "__complete show kernel ''"},
	{"diff", "diff"},
}

// shop is what the recordings show: Services of which most is well and something is not.
func (w *world) shop(t *testing.T) []service {
	t.Helper()
	http, dns := []port{{"http", "TCP", 80, 8080}}, []port{{"dns", "UDP", 53, 8080}}
	for _, p := range []*pod{w.pod1, w.pod2, w.remote1} {
		p.serve(t, 8080)
	}
	v4 := func(list ...endpoint) (out []endpoint) {
		for _, e := range list {
			if netip.MustParseAddr(e.addr).Is4() {
				out = append(out, e)
			}
		}
		return out
	}
	cart := service{name: "cart", vip: pair{v4: "10.96.0.20"}, ports: http, nodePort: 30080, external: pair{v4: "198.51.100.10"},
		annotations: annotations{"scheduler": "wlc", "drain": "5m"}, backends: v4(endpoints(w.pod1, w.pod2, w.remote1)...)}
	cart.backends = append(cart.backends, endpoint{addr: podAddr(1, 7).v4, node: otherNode, unready: true})
	return []service{
		cart,
		{name: "names", vip: pair{v4: "10.96.0.10"}, ports: dns, backends: v4(endpoints(w.pod1)...)},
		{name: "pay", vip: pair{v4: "10.96.0.21"}, ports: http, lb: pair{v4: "198.51.100.20"}, externalLocal: true, ranges: []string{"203.0.113.0/24"},
			backends: v4(endpoints(w.pod2)...)},
		{name: "later", vip: pair{v4: "10.96.0.22"}, ports: http},
		{name: "zoo", vip: pair{v4: "10.96.0.23"}, ports: http, external: pair{v4: "198.51.100.10"}, annotations: annotations{"scheduler": "fastest"},
			backends: v4(endpoints(w.pod1)...)},
	}
}

// TestRecordings runs each verb beside an agent that carries the shop, and compares what it prints with what readers are shown.
func TestRecordings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.writeFile(t, "nodes.yaml", w.nodes())
	shop := w.shop(t)
	for i := range shop {
		shop[i].namespace = "shop"
	}
	n.write(t, shop...)
	n.start(t)
	busy := w.visitor.load(t, load.Profile{To: netip.MustParseAddrPort("10.96.0.20:80"), Sources: []netip.Addr{w.visitor.source("10.96.0.20")}, New: 20, Long: 6, Every: time.Second})
	until(t, busy, "connections held open", func(r load.Report) bool { return r.Long.Alive == 6 })
	shop[0].backends[0].terminating = true // the first pod drains
	n.edit(t, func() { n.write(t, shop[0]) })
	// A destination without connections is deleted at the next count, up to six seconds later.
	n.settle(t, "end drains without connections", func(s agent.Status) bool { return s.Draining == 1 })
	next := n.grown(t, shop)
	for _, r := range recorded {
		t.Run(r.name, func(t *testing.T) {
			out := ""
			switch r.name {
			case "trace": // a client that comes while the verb looks, and later where a slow machine takes a second to begin
				delay := time.Duration(0)
				poll(t, "a connection to show", settleTimeout, func() error {
					delay += time.Second
					var client sync.WaitGroup
					client.Go(func() {
						time.Sleep(delay)
						w.outside.ask(backend.TCP, "198.51.100.20", 80, 1)
					})
					out = n.record(t, r.args, next)
					if client.Wait(); strings.Contains(out, "no packets were seen") {
						return errors.New(out)
					}
					return nil
				})
			case "diff": // something to show, again where a sample repairs it before the question
				poll(t, "a difference of two servers", settleTimeout, func() error {
					n.shell(t, "ipvsadm -e -t 10.96.0.23:80 -r "+b8080(1)+" -m -w 9; ipvsadm -A -t 10.96.0.23:81 -s rr || true")
					if out = n.record(t, r.args, next); strings.Count(out, "10.96.0.23") < 3 {
						return errors.New(out)
					}
					return nil
				})
			}
			if out == "" {
				out = n.record(t, r.args, next)
			}
			compareRecording(t, r.name, out)
		})
	}
	if got, err := busy.Stop(); err != nil || got.Failures() > 0 || got.Long.Cuts() > 0 {
		t.Errorf("clients beside the verbs: %v\n%s", err, report(got))
	}
	if _, err := n.stop(t); err != nil {
		t.Fatal(err)
	}
	compareRecording(t, "cleanup", n.record(t, "cleanup", next))
}

// record runs a verb and returns what a recording of it has.
func (n *proxy) record(t *testing.T, args, next string) string {
	t.Helper()
	out, err := n.try(program(), n.arguments(args, next)...)
	if err != nil && !strings.Contains(err.Error(), "exit status 1") {
		t.Fatal(err)
	}
	return "$ kube-ipvs " + strings.ReplaceAll(args, "NEXT", "next") + "\n" + strings.ReplaceAll(n.anonymous(out), next, "next")
}

// grown are the manifests of the agent with one more endpoint, in a directory of their own.
func (n *proxy) grown(t *testing.T, shop []service) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(n.manifests)); err != nil {
		t.Fatal(err)
	}
	names := shop[1]
	names.backends = append(slices.Clone(names.backends), endpoint{addr: podAddr(1, 8).v4, node: otherNode})
	other := proxy{node: n.node, manifests: dir}
	other.write(t, names)
	return dir
}

// arguments are those of a verb as a person gives them, and where what it works on is.
func (n *proxy) arguments(text, next string) (args []string) {
	for _, a := range strings.Fields(text) {
		switch a {
		case "NEXT":
			a = next
		case "''":
			a = ""
		}
		args = append(args, a)
	}
	switch args[0] {
	case "plan":
		return append(args, "--source-dir", n.manifests)
	case "__complete":
		return args
	}
	return append(args, n.runDir()...)
}

// runDir is the flag that names the agent's run directory.
func (n *proxy) runDir() []string {
	i := slices.Index(n.flags, "--run-dir")
	return n.flags[i : i+2]
}

// anonymous leaves out the directories of the test.
func (n *proxy) anonymous(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, n.runDir()[1], "/run/kube-ipvs"), n.manifests, "/etc/kube-ipvs/manifests")
}

// varying matches text that differs from run to run: numbers that are no part of an address or a
// name, and the width of their columns.
var varying = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\S+|\b\d\d:\d\d:\d\d(\.\d+)?\b`), "TIME"},
	{regexp.MustCompile(`\b(\d+h)?\d+m\d+(\.\d+)?s\b`), "1s"}, // a time of more than a minute, as others
	{regexp.MustCompile(`(^|[\s(=+~]-?)\d+(\.\d+)?(ns|µs|ms|s|m|h|[kMGTKi]*B?|%)?([\s,;:)/]|$)`), "${1}N${4}"},
	{regexp.MustCompile(`(^|[\s(=+~]-?)\d+(\.\d+)?(ns|µs|ms|s|m|h|[kMGTKi]*B?|%)?([\s,;:)/]|$)`), "${1}N${4}"}, // those that shared a blank
	{regexp.MustCompile(`:\d{5}\b`), ":PORT"},
	{regexp.MustCompile(`\b\d+\.\d+\.\d+-\S+`), "RELEASE"},
	{regexp.MustCompile(`(kernel release +)\d\S+`), "${1}RELEASE"}, // a kernel that no distribution ships
	{regexp.MustCompile(`(conn_tab_bits=)\d+`), "${1}N"},
	{regexp.MustCompile(` +`), " "},
	{regexp.MustCompile(`(?m) $`), ""},
}

func steadyText(text string) string {
	for _, v := range varying {
		text = v.what.ReplaceAllString(text, v.with)
	}
	return text
}

func compareRecording(t *testing.T, name, got string) {
	t.Helper()
	if dir := os.Getenv("KUBE_IPVS_E2E_RECORD"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".txt"), []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(filepath.Join(recordings, name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(steadyText(string(want)), steadyText(got)); diff != "" {
		t.Errorf("not what is recorded: make golden WHAT=recordings, and look at the difference (-recorded +got):\n%s", diff)
	}
}

// TestSteadyText: the parts of a recording that vary are replaced, and no others.
func TestSteadyText(t *testing.T) {
	for in, want := range map[string]string{
		"10.96.0.20:80  3  1.5ms":         "10.96.0.20:80 N N",
		"web-3 30080 for 4m59s, 12% ":     "web-3 N for N, N",
		"took 12.3ms: rows +0 ~1 -12":     "took N: rows +N ~N -N",
		"from 10.0.0.1:41234 at 03:04:05": "from 10.0.0.1:PORT at TIME",
	} {
		if got := steadyText(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

package daemon

import (
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

// served is a kernel made of fakes.
type served struct {
	config  config.Config
	servers *vservertest.Fake
	sets    *ipsettest.Fake
	rules   *rulestest.Fake
	links   *linktest.Fake
}

// delivered is everything that manifests say, in one batch.
func delivered(c config.Config, objects file.Objects) catalog.Batch {
	known := catalog.New(zap.NewNop(), c.NodeName, model.FromFile)
	objects.Deliver(known)
	return known.Take()
}

// carryingKernel returns a kernel that carries the Service of manifest.
func carryingKernel(t *testing.T) served {
	t.Helper()
	k := emptyKernel(t)
	c := k.config
	objects, _, err := file.Load(directory(t, map[string]string{"web.yaml": manifest}))
	if err != nil {
		t.Fatal(err)
	}
	both := model.Families()
	mode := k.mode(k.deps())
	compiler := wiring.CompilerFor(wiring.Static(c), both[:])(model.Host{})
	for _, in := range delivered(c, objects).Services {
		mode.Set(compiler.Compile(in.ID, in.Service, in.Slices))
	}
	if err := mode.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := mode.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := mode.Apply(t.Context(), dataplane.ApplyOptions{}); r.Pending != 0 {
		t.Fatalf("%d rows pending", r.Pending)
	}
	return k
}

// emptyKernel carries nothing yet.
func emptyKernel(t *testing.T) served {
	t.Helper()
	c, err := config.Defaults().Check("node-a")
	if err != nil {
		t.Fatal(err)
	}
	return served{c, vservertest.NewFake(), ipsettest.New(),
		rulestest.New(rules.Options{Owned: netfilter.Owned, Families: []rules.Family{rules.IPv4, rules.IPv6}}), linktest.New()}
}

func (k served) deps() ipvs.Deps {
	return ipvs.Deps{Servers: k.servers, Sets: k.sets, Rules: k.rules, Links: k.links}
}

func (k served) mode(deps ipvs.Deps) *ipvs.Mode {
	both := model.Families()
	return ipvs.New(zap.NewNop(), wiring.IPVSConfig(k.config, both[:], nil), deps)
}

// Tables that the kernel lacks are skipped, and all others are removed.
func TestSweepWithWhatIsThere(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lacks func(*ipvs.Deps)
		stays []string // of servers, sets, rules, link
	}{
		{"all there", func(*ipvs.Deps) {}, nil},
		{"no ip_vs", func(d *ipvs.Deps) { d.Servers = noServers{} }, []string{"servers"}},
		{"no ip_set", func(d *ipvs.Deps) { d.Sets = noSets{} }, []string{"sets"}},
		{"no iptables", func(d *ipvs.Deps) { d.Rules = noRules{} }, []string{"rules"}},
		{"nothing but the device", func(d *ipvs.Deps) { d.Servers, d.Sets, d.Rules = noServers{}, noSets{}, noRules{} }, []string{"servers", "sets", "rules"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := carryingKernel(t)
			deps := k.deps()
			tt.lacks(&deps)
			var out strings.Builder
			if err := sweep(t.Context(), k.mode(deps), &out); err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
			for what, text := range map[string]string{
				"servers": k.servers.String(), "sets": k.sets.String(), "rules": chains(k.rules), "link": k.links.String(),
			} {
				if there, want := text != "", strings.Contains(strings.Join(tt.stays, " "), what); there != want {
					t.Errorf("%s there: %t, want %t\n%s", what, there, want, text)
				}
			}
		})
	}
}

// kube-proxy has no set of node addresses, so its servers of NodePorts are known by
// their port and by the machine's own addresses.
func TestSweepAfterKubeProxy(t *testing.T) {
	k := emptyKernel(t)
	at := func(addr string) vserver.ServerChange {
		key := vserver.ServerKey{Addr: netip.MustParseAddr(addr), Port: 30080, Protocol: 6}
		return vserver.ServerChange{Op: vserver.Add, Key: key, Server: vserver.Server{Scheduler: "rr"}}
	}
	if errs := k.servers.WriteServers(t.Context(), []vserver.ServerChange{at("192.168.0.1"), at("192.168.0.2")}); errs != nil {
		t.Fatal(errs)
	}
	if err := k.sets.Create(t.Context(), ipset.Set{Name: "KUBE-NODE-PORT-TCP", Type: "bitmap:port", PortFrom: 0, PortTo: 65535}); err != nil {
		t.Fatal(err)
	}
	if err := k.sets.Add(t.Context(), "KUBE-NODE-PORT-TCP", ipset.Port(30080)); err != nil {
		t.Fatal(err)
	}
	k.links.AddElsewhere(netip.MustParseAddr("192.168.0.1"), "eth0")
	mode := k.mode(k.deps())
	if err := knowHost(t.Context(), mode, k.links); err != nil {
		t.Fatal(err)
	}
	if err := sweep(t.Context(), mode, io.Discard); err != nil {
		t.Fatal(err)
	}
	if got, want := k.servers.String(), "-A -t 192.168.0.2:30080 -s rr\n"; got != want {
		t.Errorf("servers %q, want only foreign ones: %q", got, want)
	}
}

// chains prints what is of ours in the rules: the built-in chains always stay.
func chains(f *rulestest.Fake) string {
	var b strings.Builder
	for line := range strings.Lines(f.String()) {
		if strings.Contains(line, "KUBE-") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// A sysctl that cannot be put back is a failure whatever it was set for: the
// journal does not know.
func TestRestoreRefusedIsAFailure(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "proc/sys/net/ipv4/conf/all/arp_ignore")
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	handle := sysctl.New(zap.NewNop(), sysctl.Options{Files: procfs.Files{Root: root}, RunDir: t.TempDir()})
	handle.Apply(t.Context(), []sysctl.Sysctl{{Key: "net.ipv4.conf.all.arp_ignore", Value: "1", Policy: sysctl.Required}})
	var out strings.Builder
	unreadable(t, path, func() {
		if err := restore(t.Context(), handle, migrate.TargetNone, &out); err == nil || !strings.Contains(out.String(), "net.ipv4.conf.all.arp_ignore=0: refused") {
			t.Errorf("error %v, want one; printed\n%s", err, &out)
		}
	})
	if err := restore(t.Context(), handle, migrate.TargetNone, &out); err != nil || !strings.Contains(out.String(), "net.ipv4.conf.all.arp_ignore=0: restored") {
		t.Errorf("second try: error %v, printed\n%s", err, &out)
	}
}

// unreadable puts a directory in a file's place while f runs, which stops root too.
func unreadable(t *testing.T, path string, f func()) {
	t.Helper()
	for _, step := range []func() error{
		func() error { return os.Rename(path, path+".aside") },
		func() error { return os.Mkdir(path, 0o750) },
		func() error { f(); return os.Remove(path) },
		func() error { return os.Rename(path+".aside", path) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

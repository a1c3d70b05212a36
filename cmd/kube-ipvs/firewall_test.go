package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// walledKernel is what is read of a kernel: a table of nftables with a policy of drop, or none, and INPUT of iptables-nft.
type walledKernel struct {
	mu                sync.Mutex
	reads, generation int
	drop              bool
	failed            error
	input             string
}

func (k *walledKernel) reader() filterReader {
	return filterReader{
		generation: func(context.Context) uint64 {
			k.mu.Lock()
			defer k.mu.Unlock()
			sum := crc32.NewIEEE()
			fmt.Fprint(sum, k.generation, k.drop, k.failed, k.input)
			return uint64(sum.Sum32())
		},
		nft: func(context.Context) ([]nftables.Filter, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.reads++
			compat := nftables.Filter{Key: nftables.Key{Family: "ip", Name: "filter"}, Chains: map[string]nftables.Chain{"INPUT": {Hook: &nftables.Hook{Name: "input"}}}}
			host := nftables.Filter{Key: nftables.Key{Family: "inet", Name: "filter"}, Chains: map[string]nftables.Chain{"input": {Hook: &nftables.Hook{Name: "input", Drop: k.drop}}}}
			return []nftables.Filter{host, compat}, k.failed
		},
		save: func(_ context.Context, nft map[rules.Family]bool) (out []rules.FilterTable) {
			k.mu.Lock()
			defer k.mu.Unlock()
			if nft[rules.IPv4] {
				tables, err := rules.ParseSave(strings.NewReader("*filter\n:INPUT ACCEPT [0:0]\n" + k.input + "COMMIT\n"))
				out = append(out, rules.FilterTable{Family: rules.IPv4, Backend: rules.NFT, Table: tables[0], Err: err})
			}
			return out
		},
	}
}

// change changes it while it is read.
func (k *walledKernel) change(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

func walledService(name string) agent.Known {
	key := model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: model.TCP}
	return agent.Known{ID: model.ServiceID{Namespace: "default", Name: name}, Frontends: []model.Frontend{{
		Key: key, Kind: model.KindClusterIP, Backends: []model.Backend{{Addr: netip.MustParseAddrPort("10.244.0.7:80"), Weight: 1}},
	}, {Key: model.FrontendKey{Addr: key.Addr, Port: 81, Protocol: model.TCP}, Kind: model.KindClusterIP}}}
}

const (
	policyDrops = "packets to 1 Service (default/web) from pods are dropped: table inet filter, chain input: its policy is drop"
	policyFix   = "nft insert rule inet filter input ip daddr 10.96.0.10 accept"
)

// TestFirewallWatch: what begins and what ends is told once, within a period or as the kernel tells of it, and what cannot be
// read changes nothing.
func TestFirewallWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		k, news := &walledKernel{}, make(chan struct{})
		var told []string
		repairs, busy := 0, false
		w := &wallWatch{
			log: zap.New(core), reader: keptFilters{filterReader: k.reader()}, period: func() time.Duration { return 30 * time.Second },
			services: func(_ context.Context, visit func(agent.Known)) error { visit(walledService("web")); return nil },
			facts:    func(context.Context) (firewall.Facts, error) { return firewall.Facts{IPVS: true}, nil },
			watch: func(ctx context.Context, changed func()) error {
				for {
					select {
					case <-ctx.Done():
						return nil
					case <-news:
						changed()
					}
				}
			},
			busy: func() (yes bool) {
				k.change(func() { yes = busy })
				return yes
			},
			repair: func(context.Context) error {
				k.mu.Lock()
				defer k.mu.Unlock()
				repairs++
				k.input = strings.Replace(k.input, "-A INPUT -j DROP\n-A INPUT -j KUBE-IPVS-ACCEPT\n", "-A INPUT -j KUBE-IPVS-ACCEPT\n-A INPUT -j DROP\n", 1)
				return nil
			},
			begun: func(b firewall.Block) { told = append(told, b.String(), strings.Join(b.Fix, " && ")) },
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.run(ctx) }()
		step := func(what string, blocks map[[2]string]int, lines ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, l := range logs.TakeAll() {
				got = append(got, l.Message)
			}
			if diff := cmp.Diff(lines, got); diff != "" {
				t.Errorf("%s: log (-want +got):\n%s", what, diff)
			}
			if diff := cmp.Diff(blocks, w.blocks()); diff != "" {
				t.Errorf("%s: metric (-want +got):\n%s", what, diff)
			}
		}
		one := map[[2]string]int{{"inet filter", "input"}: 1}
		time.Sleep(wallQuiet + time.Second)
		step("nothing", map[[2]string]int{})
		k.change(func() { k.drop = true })
		time.Sleep(40 * time.Second)
		step("a period later", one, "a firewall drops packets of Services")
		time.Sleep(time.Hour)
		step("for long", one)
		synctest.Wait()
		if k.reads != 2 {
			t.Errorf("%d readings of what changed once", k.reads)
		}
		k.change(func() { k.failed = errors.New("busy") })
		time.Sleep(40 * time.Second)
		step("unread", one, "filters of other programs cannot be judged")
		k.change(func() { k.failed, k.drop = nil, false })
		news <- struct{}{}
		time.Sleep(2 * (wallRest + wallQuiet))
		step("as it was told", map[[2]string]int{}, "a firewall drops packets of Services no more")
		k.change(func() { k.input = "-A INPUT -j DROP\n-A INPUT -j KUBE-IPVS-ACCEPT\n" })
		news <- struct{}{}
		time.Sleep(2 * (wallRest + wallQuiet))
		step("what our own rules mend", map[[2]string]int{})
		k.change(func() { k.input = "-A INPUT -p tcp -j DROP\n" })
		time.Sleep(40 * time.Second)
		step("what they do not", map[[2]string]int{{"iptables-nft filter", "INPUT"}: 1}, "a firewall drops packets of Services")
		time.Sleep(time.Hour)
		synctest.Wait()
		if repairs != 2 {
			t.Errorf("%d repairs, want one each time that something began", repairs)
		}
		told = told[:2]
		before := 0
		k.change(func() { busy, before = true, k.reads })
		for range 60 { // rules are written each second, and the loop is busy
			k.change(func() { k.generation++ })
			news <- struct{}{}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := k.reads - before; n < 1 || n > 2 {
			t.Errorf("%d readings in a minute of changes, want one a period", n)
		}
		if diff := cmp.Diff([]string{policyDrops, policyFix}, told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		cancel()
		<-done
	})
}

// eventAPI takes Events, and knows no Service.
type eventAPI struct{ created chan *eventsv1.Event }

func (a eventAPI) ListServices(context.Context, string, metav1.ListOptions) (*corev1.ServiceList, error) {
	return &corev1.ServiceList{}, nil
}

func (a eventAPI) CreateEvent(_ context.Context, e *eventsv1.Event) error {
	a.created <- e
	return nil
}

func (a eventAPI) PatchEvent(context.Context, string, string, []byte) error { return nil }

func TestFirewallEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := eventAPI{created: make(chan *eventsv1.Event, 1)}
		r := events.New(events.Options{Node: "node-a", API: api, Log: zap.NewNop()})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		herald{r}.walled(firewall.Block{
			Cause: firewall.Cause{Table: "inet filter", Base: "input", Word: "drop"}, Hook: "input", From: []string{firewall.FromPods},
			Services: 1, Names: []string{"default/web"}, Fix: []string{policyFix},
		})
		e := <-api.created
		if e.Regarding.Kind != "Node" || e.Type != "Warning" || e.Reason != "FirewallBlocksServices" || e.Note != policyDrops+"; to let them pass: "+policyFix {
			t.Errorf("%s %s %s: %s", e.Regarding.Kind, e.Type, e.Reason, e.Note)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestFirewallCheck(t *testing.T) {
	web := func(context.Context) ([]firewall.Frontend, error) {
		return []firewall.Frontend{{Service: "default/web", Kind: firewall.ClusterIP, Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: 6}}, nil
	}
	for _, tt := range []struct {
		name        string
		k           *walledKernel
		state       tune.State
		detail, fix string
	}{
		{"none", &walledKernel{}, tune.OK, "none drops packets to the 1 addresses and ports of Services", ""},
		{"policy of drop", &walledKernel{drop: true}, tune.Warn, policyDrops, policyFix},
		{"a rule of iptables", &walledKernel{input: "-A INPUT -i eth0 -j ACCEPT\n-A INPUT -d 10.96.0.0/12 -j DROP\n"}, tune.OK,
			"1 addresses and ports; it cannot be said of table iptables-nft filter, chain INPUT", ""},
		{"unread", &walledKernel{failed: errors.New("busy")}, tune.Warn, "busy", "run as root, in the network namespace of the host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := tune.RunChecks(t.Context(), []tune.Check{wallCheck(config.Config{Mode: config.ModeIPVS}, tt.k.reader().read, web)})[0]
			if diff := cmp.Diff([]string{string(tt.state), tt.detail, tt.fix}, []string{string(v.State), v.Detail, v.Fix}); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFirewallStory: a packet that a filter drops is not called forwarded, and the commands that mend it are shown.
func TestFirewallStory(t *testing.T) {
	way := func(o dataplane.Origin) agent.Way {
		return agent.Way{Origin: o, Walk: dataplane.Walk{End: dataplane.EndForwarded, Steps: []string{"routing: local", "filter INPUT: rules of others, then KUBE-IPVS-ACCEPT accepts", "IPVS"}}}
	}
	s := &agent.Story{Mode: "ipvs", Node: "a", Synced: true, Services: []agent.ServiceStory{{
		Name: "default/web", Frontends: []agent.FrontendStory{{Key: "10.96.0.10:80/tcp", Kind: "ClusterIP", Asked: true, Taking: 1, Backends: 1, Ways: []agent.Way{way(dataplane.FromPod), way(dataplane.FromHost)}}},
	}}}
	reader := (&walledKernel{drop: true}).reader()
	look := wallsOf(config.Config{}, &reader)
	var found explain.Found
	look(t.Context(), s, &found)
	r := explain.New("default/web", s, nil, found)
	if !strings.HasPrefix(r.Verdict[0], "a firewall drops "+policyDrops) || r.OK {
		t.Errorf("verdict: %q", r.Verdict)
	}
	ways := s.Services[0].Frontends[0].Ways
	const step = "dropped: input hook, table inet filter, chain input: its policy is drop"
	if diff := cmp.Diff([]string{"routing: local", step}, ways[0].Steps); diff != "" || ways[0].End != dataplane.EndDropped || ways[1].End != dataplane.EndForwarded {
		t.Errorf("steps (-want +got), ends %s, %s:\n%s", ways[0].End, ways[1].End, diff)
	}
	var text strings.Builder
	if err := r.Write(&text, false); err != nil || !strings.Contains(text.String(), "\n  "+policyFix+"\n") {
		t.Errorf("%v, no remedy in\n%s", err, text.String())
	}
}

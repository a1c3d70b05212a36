package packet

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// The parameters of the dashboard's picture: the duration, the scrape interval, and the backend
// that leaves.
const (
	shownFor    = 5 * time.Minute
	scrapedEach = 5 * time.Second
	shownDrain  = 45 * time.Second
)

// TestDashboardData keeps the shop busy for some minutes with several events, and stores each page
// of metrics of the agent. Each file is named by the time of the scrape, in Unix milliseconds; that
// of an agent that is down is empty. make golden WHAT=dashboard makes a picture of it.
func TestDashboardData(t *testing.T) {
	dir := os.Getenv("KUBE_IPVS_E2E_SCRAPES")
	if dir == "" {
		t.Skip("KUBE_IPVS_E2E_SCRAPES names no directory to keep scrapes in: make golden WHAT=dashboard does")
	}
	w := newWorld(t)
	b := &busyShop{world: w, proxy: newAgent(t, w.node, "--cluster-cidr", clusters, "--ipvs-sync-period", "5s", "--service-metrics", "4")}
	b.open(t)
	steps := b.steps(t)
	tick := time.NewTicker(scrapedEach)
	defer tick.Stop()
	for begin := time.Now(); time.Since(begin) < shownFor; <-tick.C {
		for len(steps) > 0 && time.Since(begin) >= steps[0].at {
			t.Logf("after %s: %s", time.Since(begin).Round(time.Second), steps[0].what)
			steps[0].do()
			steps = steps[1:]
		}
		w.visitor.ask(backend.UDP, "10.96.0.10", 53, 20)
		b.scrape(t, dir)
	}
	for _, run := range b.clients {
		got, err := run.Stop()
		unfailing(t, got, err)
	}
	if len(steps) > 0 {
		t.Errorf("no time was left to %s", steps[0].what)
	}
}

// busyShop is the shop with its clients.
type busyShop struct {
	*world
	*proxy
	cart, front, zoo service
	clients          []*load.Run
	rush             *load.Run
}

// open starts the agent with all of the shop but the zoo, and the clients.
func (b *busyShop) open(t *testing.T) {
	t.Helper()
	shop := b.shop(t)
	for i := range shop {
		shop[i].namespace = "shop"
	}
	b.remote2.serve(t, 8080)
	b.cart, b.zoo = shop[0], shop[4]
	b.cart.annotations["drain"] = shownDrain.String()
	b.front = service{name: "front", namespace: "shop", vip: pair{v4: "10.96.0.24"}, ports: b.cart.ports}
	for _, p := range []*pod{b.pod1, b.remote2} {
		b.front.backends = append(b.front.backends, endpoint{addr: p.addr.v4, node: p.node})
	}
	b.writeFile(t, "nodes.yaml", b.nodes())
	b.now(t, append(shop[:4:4], b.front)...)
	b.start(t)
	b.clients = []*load.Run{
		b.visitor.load(t, load.Profile{To: netip.MustParseAddrPort("10.96.0.20:80"), Sources: []netip.Addr{b.visitor.source("10.96.0.20")}, New: 30, Long: 12, Every: time.Second}),
		b.pod3.load(t, load.Profile{To: netip.MustParseAddrPort("10.96.0.24:80"), New: 12, Long: 5, Every: time.Second}),
		b.outside.load(t, load.Profile{To: netip.MustParseAddrPort("198.51.100.20:80"), New: 6}),
	}
}

// step is something that happens to the shop.
type step struct {
	at   time.Duration
	what string
	do   func()
}

func (b *busyShop) steps(t *testing.T) []step {
	return []step{
		{60 * time.Second, "a backend of the cart terminates", func() { b.cart.backends[0].terminating = true; b.now(t, b.cart) }},
		{75 * time.Second, "it is listed no more, and drains", func() { b.cart.backends = b.cart.backends[1:]; b.now(t, b.cart) }},
		{90 * time.Second, "a rush to the front", func() {
			b.rush = b.visitor.load(t, load.Profile{To: netip.MustParseAddrPort("10.96.0.24:80"), Sources: []netip.Addr{b.visitor.source("10.96.0.24")}, New: 40, Long: 10, Every: time.Second})
			b.clients = append(b.clients, b.rush)
		}},
		{120 * time.Second, "a Service wants an address that is taken, by a scheduler that there is not", func() { b.now(t, b.zoo) }},
		{135 * time.Second, "an operator changes a weight by hand", func() { b.meddle(t) }},
		{165 * time.Second, "and again", func() { b.meddle(t) }},
		{180 * time.Second, "the rush ends", func() { _, _ = b.rush.Stop() }}, // looked at in the end
		{195 * time.Second, "the agent is killed", func() { b.kill(t) }},
		{215 * time.Second, "the agent starts again", func() { b.start(t) }},
		{240 * time.Second, "a backend comes back", func() {
			b.cart.backends = append(b.cart.backends, endpoint{addr: b.pod1.addr.v4, node: b.pod1.node})
			b.now(t, b.cart)
		}},
		{255 * time.Second, "the zoo takes an address and a scheduler of its own", func() {
			b.zoo.external.v4, b.zoo.annotations = "198.51.100.11", nil
			b.now(t, b.zoo)
		}},
	}
}

func (b *busyShop) meddle(t *testing.T) {
	t.Helper()
	b.run(t, "ipvsadm", "-e", "-t", hostPort(b.front.vip.v4, 80), "-r", hostPort(b.pod1.addr.v4, 8080), "-m", "-w", "9")
}

// now writes manifests whose slices say, as those of a control plane do, when what they tell became so.
func (b *busyShop) now(t *testing.T, services ...service) {
	t.Helper()
	for _, s := range services {
		items := s.items()
		for _, item := range items[1:] {
			item["metadata"].(object)["annotations"] = object{"endpoints.kubernetes.io/last-change-trigger-time": time.Now().Format(time.RFC3339Nano)}
		}
		b.writeFile(t, s.name+".yaml", list(items...))
	}
}

func (b *busyShop) scrape(t *testing.T, dir string) {
	t.Helper()
	at, page := time.Now(), ""
	if b.process != nil {
		page = b.page(t, "/metrics")
	}
	if err := os.WriteFile(filepath.Join(dir, strconv.FormatInt(at.UnixMilli(), 10)), []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
}

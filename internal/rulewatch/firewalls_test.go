package rulewatch

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall/firewalltest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

// TestFirewallWatch: the watcher reports once what begins and what ends, within a period or after a notification. A reading that
// fails changes nothing.
func TestFirewallWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		k, news := &firewalltest.Kernel{}, make(chan struct{})
		var told []string
		repairs, busy := 0, false
		reader := firewall.CachedReader{Reader: k.Reader()}
		w := NewFirewallWatcher(zap.New(core), FirewallOptions{
			Tables: reader.Read, Period: func() time.Duration { return 30 * time.Second },
			Frontends: func(context.Context) ([]firewall.Frontend, error) {
				return []firewall.Frontend{{
					Service: "default/web", Kind: firewall.ClusterIP, Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: 6,
					Backend: netip.MustParseAddrPort("10.244.0.7:80"),
				}}, nil
			},
			Facts: func(context.Context) (firewall.Facts, error) { return firewall.Facts{IPVS: true}, nil },
			Watch: func(ctx context.Context, changed func([]nftables.Writer)) error {
				for {
					select {
					case <-ctx.Done():
						return nil
					case <-news:
						changed(nil)
					}
				}
			},
			Busy: func() (yes bool) {
				k.Change(func() { yes = busy })
				return yes
			},
			Repair: func(context.Context) error {
				k.Change(func() {
					repairs++
					k.Input = strings.Replace(k.Input, "-A INPUT -j DROP\n-A INPUT -j KUBE-IPVS-ACCEPT\n", "-A INPUT -j KUBE-IPVS-ACCEPT\n-A INPUT -j DROP\n", 1)
				})
				return nil
			},
			Blocked: func(b firewall.Block) { told = append(told, b.String(), strings.Join(b.Fix, " && ")) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
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
			if diff := cmp.Diff(blocks, w.Blocks()); diff != "" {
				t.Errorf("%s: metric (-want +got):\n%s", what, diff)
			}
		}
		one := map[[2]string]int{{"inet filter", "input"}: 1}
		time.Sleep(quietPeriod + time.Second)
		step("nothing", map[[2]string]int{})
		k.Change(func() { k.Drop = true })
		time.Sleep(40 * time.Second)
		step("a period later", one, "a firewall drops packets of Services")
		time.Sleep(time.Hour)
		step("for long", one)
		synctest.Wait()
		if k.Reads != 2 {
			t.Errorf("%d readings of what changed once", k.Reads)
		}
		k.Change(func() { k.Failed = errors.New("busy") })
		time.Sleep(40 * time.Second)
		step("unread", one, "cannot read the filters of other programs")
		k.Change(func() { k.Failed, k.Drop = nil, false })
		news <- struct{}{}
		time.Sleep(2 * (minReadInterval + quietPeriod))
		step("after a notification", map[[2]string]int{}, "the firewall no longer drops packets of Services")
		k.Change(func() { k.Input = "-A INPUT -j DROP\n-A INPUT -j KUBE-IPVS-ACCEPT\n" })
		news <- struct{}{}
		time.Sleep(2 * (minReadInterval + quietPeriod))
		step("a drop that our rules repair", map[[2]string]int{})
		k.Change(func() { k.Input = "-A INPUT -p tcp -j DROP\n" })
		time.Sleep(40 * time.Second)
		step("a drop that they do not", map[[2]string]int{{"iptables-nft filter", "INPUT"}: 1}, "a firewall drops packets of Services")
		time.Sleep(time.Hour)
		synctest.Wait()
		if repairs != 2 {
			t.Errorf("%d repairs, want one each time that something began", repairs)
		}
		told = told[:2]
		before := 0
		k.Change(func() { busy, before = true, k.Reads })
		for range 60 { // rules are written each second, and the loop is busy
			k.Change(func() { k.Rewrites++ })
			news <- struct{}{}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := k.Reads - before; n < 1 || n > 2 {
			t.Errorf("%d readings in a minute of changes, want one a period", n)
		}
		if diff := cmp.Diff([]string{firewalltest.PolicyDrops, firewalltest.PolicyFix}, told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		cancel()
		<-done
	})
}

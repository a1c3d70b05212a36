package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/healthcheck"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/modules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/rulewatch"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// kernel has the handles of the network namespace of this process. In iptables mode servers and
// sets are nil; for cleanup all but link may be.
type kernel struct {
	servers *vserver.Handle
	sets    *ipset.Handle
	rules   *rules.Handle           // nil where the node lacks iptables and ipvs mode needs none
	own     *rulewatch.TrackedRules // rules, for the mode
	// noIPTables is why rules is nil.
	noIPTables error
	// backend holds rules and sets in nftables, through nft; both are nil where iptables does.
	backend   *nftrules.Backend
	nft       *nft.Handle
	ruleStore rulesDecision
	bound     atomic.Bool // in iptables mode: the device of ipvs mode is there
	link      *link.Handle
	files     procfs.Files
	sysctls   *sysctl.Handle
	modules   *modules.Loader
	flows     *conntrack.Handle // nil where the kernel does not let this process list flows: stale ones time out
	tables    *nftables.Handle
	idle      atomic.Pointer[timeoutEnforcer] // nil without servers
	pickup    pickup
	calls     calls
	// sysctlRefused is called when a required sysctl is refused; nil for no call. unset is the last
	// reason. Only the loop uses it.
	sysctlRefused func(why error)
	unset         string
}

// openBase opens what every mode needs. Errors about missing features have a remedy.
func openBase(ctx context.Context, log *zap.Logger, c config.Config) (*kernel, error) {
	k := &kernel{sysctls: sysctl.New(log, sysctl.Options{RunDir: c.RunDir}), modules: modules.New(log, modules.Options{})}
	k.modules.Load(ctx, "nf_conntrack", "nf_conntrack_netlink") // the calls below fail where one is missing
	var err error
	if k.link, err = link.New(log, link.Options{Called: k.calls.of("link"), DetachMark: link.DetachMark(c.MasqueradeBit)}); err != nil {
		return nil, k.close(err)
	}
	there, err := k.link.There(ctx)
	if err != nil {
		return nil, k.close(err)
	}
	k.bound.Store(there)
	if k.tables, err = nftables.New(log, nftables.Options{Called: k.calls.of("nftables")}); err != nil {
		return nil, k.close(err)
	}
	switch k.rules, err = wiring.OpenRules(log, c, k.tables, k.calls.of("rules")); {
	case err == nil:
		k.own = rulewatch.Track(k.rules, k.tables)
	case lacksIPTables(err) && c.Mode != config.ModeIPTables && c.Rules != config.RulesIPTables:
		k.rules, k.noIPTables = nil, withIPTablesHint(err)
	default:
		return nil, k.close(withPermissionHint(withIPTablesHint(err), "CAP_NET_ADMIN and CAP_NET_RAW"))
	}
	if k.flows, err = conntrack.New(log, conntrack.Options{Called: k.calls.of("conntrack")}); err != nil {
		log.Warn("cannot open connection tracking, stale UDP and SCTP flows stay until they time out", zap.Error(k.withModuleHint("nf_conntrack_netlink", err)))
	}
	return k, nil
}

// openIPVS loads the modules of IPVS and sets, and opens both. After an error neither is open.
func (k *kernel) openIPVS(ctx context.Context, log *zap.Logger, c config.Config) (err error) {
	k.modules.Load(ctx, nodecheck.Modules(k.files, c)...)
	defer func() {
		if err != nil {
			err = k.closeIPVS(err)
		}
	}()
	if k.servers, err = k.openServers(ctx, log); err != nil {
		return k.withModuleHint("ip_vs", err)
	}
	if err = k.openRuleStore(ctx, log, c); err != nil {
		return err
	}
	if there, asked := k.link.There(ctx); asked != nil {
		return asked
	} else if !there {
		if err = link.Probe(ctx, log); err != nil {
			return k.withModuleHint("dummy", err)
		}
	}
	k.idle.Store(newTimeoutEnforcer(log, k.servers, k.sysctls))
	return nil
}

// openServers opens IPVS. Linux 5.10 does not load ip_vs for that, and an agent in a pod may not load modules. That
// kernel loads ip_vs for a question about the match of virtual servers.
func (k *kernel) openServers(ctx context.Context, log *zap.Logger) (*vserver.Handle, error) {
	o := vserver.Options{Called: k.calls.of("vserver")}
	servers, err := vserver.New(log, o)
	if !errors.Is(err, vserver.ErrUnsupported) || k.rules == nil {
		return servers, err
	}
	if lacks := k.rules.FindMatch(ctx, netfilter.IPVSMatch); lacks != nil {
		return nil, err
	}
	return vserver.New(log, o)
}

// closeIPVS closes what openIPVS opened, and returns err.
func (k *kernel) closeIPVS(err error) error {
	if k.servers != nil {
		k.servers.Close()
	}
	if k.sets != nil {
		err = errors.Join(err, k.sets.Close())
	}
	if k.nft != nil {
		k.nft.Close()
	}
	k.servers, k.sets, k.nft, k.backend = nil, nil, nil, nil
	k.ruleStore = rulesDecision{}
	k.idle.Store(nil)
	return err
}

// withPermissionHint adds the remedy to an error of missing rights.
func withPermissionHint(err error, capabilities string) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w\n  remedy: run as root, or with %s", err, capabilities)
	}
	return err
}

// lacksIPTables reports whether an error means that the node lacks iptables. An error of missing
// rights is a different one: no package mends it.
func lacksIPTables(err error) bool {
	return errors.Is(err, rules.ErrUnsupported) && !errors.Is(err, os.ErrPermission)
}

// withIPTablesHint adds the remedy to an error of missing tools.
func withIPTablesHint(err error) error {
	if lacksIPTables(err) {
		return fmt.Errorf("%w\n  remedy: install iptables: the package iptables on Debian and Ubuntu, iptables-nft on RHEL and Fedora, "+
			"where the kernel needs kernel-modules-extra, too", err)
	}
	return err
}

// withModuleHint adds the remedy to an error of a missing module.
func (k *kernel) withModuleHint(module string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return withPermissionHint(err, "CAP_NET_ADMIN")
	}
	if fix := k.modules.Fix(module); fix != "" {
		return fmt.Errorf("%w\n  remedy: %s", err, fix)
	}
	return err
}

// close closes all handles, and returns err.
func (k *kernel) close(err error) error {
	err = k.closeIPVS(err)
	if k.link != nil {
		k.link.Close()
	}
	if k.flows != nil {
		k.flows.Close()
	}
	if k.tables != nil {
		k.tables.Close()
	}
	return err
}

// newRulesMode returns iptables mode with its handles.
func (k *kernel) newRulesMode(ctx context.Context, log *zap.Logger, now wiring.Settings, families []model.Family, flows iptables.Flows, both bool) *iptables.Mode {
	mc := wiring.IPTablesConfig(now(), families, k.rules)
	mc.Both, mc.DropInvalid = both, !k.sysctls.Liberal(ctx)
	mc.Everywhere = func(f model.Family) bool { return plan.NodePortSelection(now().NodePorts).Everywhere(f) }
	mc.Bound = k.bound.Load
	mc.Loopback = func() bool { return plan.NodePortSelection(now().NodePorts).Loopback() }
	return iptables.New(log, mc, iptables.Deps{
		Rules: k.own, Tables: k.tables, Flows: flows, Announced: k.link,
		Tune: func(ctx context.Context) error { return k.tuneRules(ctx, mc.Localhost && mc.Loopback()) },
	})
}

// newMode returns ipvs mode with its handles. A subsystem without a handle holds nothing.
func (k *kernel) newMode(log *zap.Logger, now wiring.Settings, families []model.Family, flows ipvs.Flows) *ipvs.Mode {
	deps := ipvs.Deps{Servers: noServers{}, Sets: noSets{}, Rules: noRules{}, Links: k.link, Flows: flows, Announced: k.link}
	deps.Tune = func(ctx context.Context) error { return k.tune(ctx, now()) }
	deps.KeepTuned = func(ctx context.Context) error { return k.keepTuned(ctx, now()) }
	deps.Pickup = pickupOf{k}
	if k.servers != nil {
		deps.Servers = k.servers
	}
	if k.sets != nil {
		deps.Sets = k.sets
	}
	tools := k.rules
	switch {
	case k.backend != nil:
		deps.Rules, deps.Sets, tools = k.backend.Rules(), k.backend.Sets(), nil
	case k.own != nil:
		deps.Rules = k.own
	case k.rules != nil:
		deps.Rules = k.rules
	}
	if k.tables != nil {
		deps.Tables = k.tables
	}
	return ipvs.New(log, wiring.IPVSConfig(now(), families, tools), deps)
}

// healthPorts opens health-check ports on the addresses of NodePorts. If NodePorts answer
// everywhere, one socket serves all addresses, future ones included.
type healthPorts struct {
	*healthcheck.Servers
	now wiring.Settings
}

func newHealthPorts(log *zap.Logger, now wiring.Settings, o healthcheck.Options) healthPorts {
	h := healthPorts{healthcheck.New(log, o), now}
	h.Listen(nil)
	return h
}

// count returns how many sockets are open, and how many could not be opened.
func (h healthPorts) count() (open, failed int) {
	for _, s := range h.Status() {
		if s.Listening {
			open++
		} else {
			failed++
		}
	}
	return open, failed
}

// Listen implements agent.Health.
func (h healthPorts) Listen(addrs []netip.Addr) {
	if h.now().NodePorts.All {
		h.Servers.Listen(nil, true)
	} else {
		h.Servers.Listen(addrs, false)
	}
}

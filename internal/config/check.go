package config

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// Check turns settings into a Config. hostname is the host's own name, used
// where no other is given. All mistakes are reported together, each by the flag or
// the field of the file that it came by.
func (s Settings) Check(hostname string) (Config, error) {
	p := problems{s: &s}
	proxy, own := &s.Proxy, &s.Own
	c := Config{
		ConfigFile: s.ConfigFile, WriteConfigTo: s.WriteConfigTo, Cleanup: s.Cleanup, InitOnly: s.InitOnly,
		Unused:       s.unused(),
		SourceDir:    own.SourceDir,
		Client:       p.client(),
		WatchNodes:   own.WatchNodes,
		NodeName:     p.nodeName(proxy.HostnameOverride, hostname),
		BindAddress:  p.bindAddress(),
		ExcludeCIDRs: p.cidrs("ipvs-exclude-cidrs", proxy.IPVS.ExcludeCIDRs),
		StrictARP:    proxy.IPVS.StrictARP,
		Timeouts:     p.timeouts(),
		Drain:        p.drain(own.Drain.Duration),
		SyncPeriod:   proxy.IPVS.SyncPeriod.Duration, MinSyncPeriod: proxy.IPVS.MinSyncPeriod.Duration,

		DetectLocal:   p.detectLocal(),
		MasqueradeAll: proxy.IPTables.MasqueradeAll,
		MasqueradeBit: uint8(*proxy.IPTables.MasqueradeBit),
		IPTables:      strings.TrimPrefix(own.IPTablesBackend, "auto"),
		NodePorts:     p.nodePorts(proxy.NodePortAddresses),
		NodePortRange: p.portRange(own.ServiceNodePortRange),

		AllowExternalIPs: p.featureGates(),
		ExternalIPCIDRs:  p.cidrs("external-ip-allowed-cidrs", own.ExternalIPAllowedCIDRs),
		NodeAddresses:    p.addresses("node-address", s.NodeAddresses),

		BindHardFail: proxy.BindAddressHardFail, Profiling: proxy.EnableProfiling,
		ReadyzWatchBound: own.ReadyzWatchBound.Duration, HealthzWatchBound: own.HealthzWatchBound.Duration,
		Conntrack:   p.conntrack(),
		OOMScoreAdj: int(*proxy.OOMScoreAdj),
		RunDir:      own.RunDir,
		LogLevel:    s.logLevel(),
		LogFormat:   proxy.Logging.Format,
	}
	c.Healthz, c.Metrics = p.listeners(c.BindAddress)
	var err error
	if c.Scheduler, err = scheduler.Parse(proxy.IPVS.Scheduler, ""); err != nil {
		p.add("ipvs-scheduler", "%v", err)
	}
	p.mode(string(proxy.Mode))
	p.choices(c)
	p.limits(c)
	c.effective = s.fill(c, p.gates)
	return c, p.err()
}

// problems collects what is wrong with settings.
type problems struct {
	s    *Settings
	list []error
	// gates are those of file and command line, joined.
	gates map[string]bool
}

// add tells what is wrong with the setting that has the flag.
func (p *problems) add(flag, reason string, args ...any) {
	p.list = append(p.list, fmt.Errorf("%s: %w", p.s.name(flag), fmt.Errorf(reason, args...)))
}

// addAt tells what is wrong with one value of a list. In a file values have numbers.
func (p *problems) addAt(flag string, i int, reason string, args ...any) {
	name := p.s.name(flag)
	if !strings.HasPrefix(name, "-") {
		name = fmt.Sprintf("%s[%d]", name, i)
	}
	p.list = append(p.list, fmt.Errorf("%s: %w", name, fmt.Errorf(reason, args...)))
}

func (p *problems) err() error { return errors.Join(p.list...) }

// choices looks at settings that have few values.
func (p *problems) choices(c Config) {
	p.oneOf("iptables-backend", p.s.Own.IPTablesBackend, []string{"auto", "nft", "legacy"})
	p.oneOf("watch-nodes", p.s.Own.WatchNodes, []string{WatchAuto, WatchAll, WatchOwn})
	p.oneOf("log-level", c.LogLevel, LogLevels)
	p.oneOf("logging-format", c.LogFormat, LogFormats)
}

func (p *problems) oneOf(flag, value string, allowed []string) {
	if !slices.Contains(allowed, value) {
		p.add(flag, "%q is not one of %s", value, strings.Join(allowed, ", "))
	}
}

// mode has one good value. Who comes with another mode of kube-proxy is told how to
// get this one without touching the file.
func (p *problems) mode(mode string) {
	switch mode {
	case "", "ipvs":
	case "iptables", "nftables", "kernelspace":
		reason := "%q is another mode of kube-proxy, and ipvs is what runs here"
		if p.s.ConfigFile != "" && !p.s.given["proxy-mode"] {
			reason += "; --proxy-mode=ipvs wins over the file"
		}
		p.add("proxy-mode", reason, mode)
	default:
		p.oneOf("proxy-mode", mode, []string{"ipvs"})
	}
}

// limits looks at numbers and times.
func (p *problems) limits(c Config) {
	if bit := *p.s.Proxy.IPTables.MasqueradeBit; bit < 0 || bit > 31 {
		p.add("iptables-masquerade-bit", "%d is not a bit of the packet mark (0-31)", bit)
	}
	if c.OOMScoreAdj < -1000 || c.OOMScoreAdj > 1000 {
		p.add("oom-score-adj", "%d does not lie between -1000 and 1000", c.OOMScoreAdj)
	}
	if period := p.s.Proxy.ConfigSyncPeriod.Duration; period <= 0 {
		p.add("config-sync-period", "%s is not more than 0", period)
	}
	p.periods(c)
	p.bound("readyz-watch-bound", c.ReadyzWatchBound)
	if c.HealthzWatchBound != 0 {
		p.bound("healthz-watch-bound", c.HealthzWatchBound)
	}
	if !filepath.IsAbs(c.RunDir) {
		p.add("run-dir", "%q is not an absolute path", c.RunDir)
	}
}

func (p *problems) periods(c Config) {
	switch {
	case c.SyncPeriod < time.Second:
		p.add("ipvs-sync-period", "%s is too short, at least 1s", c.SyncPeriod)
	case c.MinSyncPeriod > c.SyncPeriod:
		p.add("ipvs-min-sync-period", "%s is longer than %s", c.MinSyncPeriod, p.s.with("ipvs-sync-period", c.SyncPeriod.String()))
	}
	if c.MinSyncPeriod < 0 {
		p.add("ipvs-min-sync-period", "%s is less than 0", c.MinSyncPeriod)
	}
}

func (p *problems) bound(flag string, d time.Duration) {
	if d < time.Second {
		p.add(flag, "%s is too short, at least 1s", d)
	}
}

// seconds looks at a time that the kernel keeps in whole seconds. Less than one
// would be written as 0, which means something else.
func (p *problems) seconds(flag string, d time.Duration) time.Duration {
	switch {
	case d < 0:
		p.add(flag, "%s is less than 0", d)
	case d > 0 && d < time.Second:
		p.add(flag, "%s is less than 1s, and the kernel counts seconds; 0s leaves what it has", d)
	}
	return d
}

func (p *problems) conntrack() Conntrack {
	ct := p.s.Proxy.Conntrack
	return Conntrack{
		MaxPerCore:     p.notNegative("conntrack-max-per-core", *ct.MaxPerCore),
		Min:            p.notNegative("conntrack-min", *ct.Min),
		TCPEstablished: p.seconds("conntrack-tcp-timeout-established", ct.TCPEstablishedTimeout.Duration),
		TCPCloseWait:   p.seconds("conntrack-tcp-timeout-close-wait", ct.TCPCloseWaitTimeout.Duration),
		UDP:            p.seconds("conntrack-udp-timeout", ct.UDPTimeout.Duration),
		UDPStream:      p.seconds("conntrack-udp-timeout-stream", ct.UDPStreamTimeout.Duration),
		TCPBeLiberal:   ct.TCPBeLiberal,
	}
}

func (p *problems) notNegative(flag string, n int32) int {
	if n < 0 {
		p.add(flag, "%d is less than 0", n)
	}
	return int(n)
}

func (p *problems) client() Client {
	cc := p.s.Proxy.ClientConnection
	if qps := float64(cc.QPS); math.IsNaN(qps) || math.IsInf(qps, 0) {
		p.add("kube-api-qps", "%v is not a number of requests a second", qps)
	}
	return Client{
		Kubeconfig: cc.Kubeconfig, Master: p.s.Master,
		ContentType: cc.ContentType, AcceptContentTypes: cc.AcceptContentTypes,
		QPS: cc.QPS, Burst: p.notNegative("kube-api-burst", cc.Burst),
	}
}

// logLevel follows kube-proxy's verbosity unless there is a level of its own.
func (s *Settings) logLevel() string {
	switch {
	case s.Own.LogLevel != "":
		return s.Own.LogLevel
	case s.Proxy.Logging.Verbosity >= 4:
		return "debug"
	}
	return "info"
}

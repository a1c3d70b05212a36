package config

import (
	"math"
	"path/filepath"
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
		Invocation: Invocation{
			ConfigFile: s.ConfigFile, WriteConfigTo: s.WriteConfigTo, Cleanup: s.Cleanup, InitOnly: s.InitOnly, Unused: s.unused(),
		},
		Inputs: Inputs{
			SourceDir: own.SourceDir, Client: p.client(), WatchNodes: own.WatchNodes,
			NodeName: p.nodeName(proxy.HostnameOverride, hostname), BindAddress: p.bindAddress(),
		},
		VirtualServers: VirtualServers{
			ExcludeCIDRs: p.cidrs("ipvs-exclude-cidrs", proxy.IPVS.ExcludeCIDRs), StrictARP: proxy.IPVS.StrictARP,
			APIServerProbe: own.APIServerProbePeriod.Duration,
		},
		Binding: Binding{
			VIPBinding: p.vipBinding(own.VIPBinding), ServiceCIDRs: p.serviceCIDRs(), ExternalBinding: p.externalBinding(own.ExternalBinding),
		},
	}
	c.Announcing = p.announcing()
	// Mistakes are reported in this order.
	c.Timeouts, c.Drain = p.timeouts(), p.drain(own.Drain.Duration)
	c.ModeChoice = ModeChoice{
		Mode: p.mode(string(proxy.Mode)), ModeImplied: s.noMode && !s.given["proxy-mode"], OnMissing: p.onMissing(own.OnMissingIPVS),
	}
	c.SyncPeriods = SyncPeriods{
		SyncPeriod: proxy.IPVS.SyncPeriod.Duration, MinSyncPeriod: proxy.IPVS.MinSyncPeriod.Duration,
		IPTablesSyncPeriod: proxy.IPTables.SyncPeriod.Duration, IPTablesMinSyncPeriod: proxy.IPTables.MinSyncPeriod.Duration,
	}
	c.Netfilter = Netfilter{
		DetectLocal: p.detectLocal(), MasqueradeAll: proxy.IPTables.MasqueradeAll, MasqueradeBit: uint8(*proxy.IPTables.MasqueradeBit),
		IPTables: strings.TrimPrefix(own.IPTablesBackend, "auto"), Rules: p.rules(own.Rules),
	}
	c.Exposure = Exposure{
		NodePorts: p.nodePorts(proxy.NodePortAddresses), NodePortRange: p.portRange(own.ServiceNodePortRange),
		LocalhostNodePorts: *proxy.IPTables.LocalhostNodePorts,
		AllowExternalIPs:   p.featureGates(), ExternalIPCIDRs: p.cidrs("external-ip-allowed-cidrs", own.ExternalIPAllowedCIDRs),
	}
	c.NodeAddresses = p.addresses("node-address", s.NodeAddresses)
	c.Listeners = Listeners{
		BindHardFail: proxy.BindAddressHardFail, Profiling: proxy.EnableProfiling,
		ReadyzWatchBound: own.ReadyzWatchBound.Duration, HealthzWatchBound: own.HealthzWatchBound.Duration,
		ServiceMetrics: p.notNegative("service-metrics", *own.ServiceMetrics),
	}
	c.ServiceLimits = ServiceLimits{
		ServiceFrontends: p.atLeast(1, "service-frontends", *own.ServiceFrontends), ServiceRows: p.atLeast(1, "service-rows", *own.ServiceRows),
		ServiceRanges: p.atLeast(1, "service-source-ranges", *own.ServiceSourceRanges),
	}
	c.DNSServices = p.services("dns-services", own.DNSServices)
	c.Conntrack = p.conntrack()
	c.Runtime = Runtime{OOMScoreAdj: int(*proxy.OOMScoreAdj), RunDir: own.RunDir, LogLevel: s.logLevel(), LogFormat: proxy.Logging.Format}
	c.Healthz, c.Metrics = p.listeners(c.BindAddress)
	var err error
	if c.Scheduler, err = scheduler.Parse(proxy.IPVS.Scheduler, ""); err != nil {
		p.add("ipvs-scheduler", "%v", err)
	}
	p.choices(c)
	p.limits(c)
	c.effective = s.fill(c, p.gates)
	return c, p.err()
}

// choices looks at settings that have few values.
func (p *problems) choices(c Config) {
	p.oneOf("iptables-backend", p.s.Own.IPTablesBackend)
	p.oneOf("watch-nodes", p.s.Own.WatchNodes)
	p.oneOf("log-level", c.LogLevel)
	p.oneOf("logging-format", c.LogFormat)
}

// limits looks at numbers and times.
func (p *problems) limits(c Config) {
	if bit := *p.s.Proxy.IPTables.MasqueradeBit; bit < 0 || bit > 31 {
		p.add("iptables-masquerade-bit", "%d is not a bit of the packet mark (0-31)", bit)
	}
	if c.OOMScoreAdj < -1000 || c.OOMScoreAdj > 1000 {
		p.add("oom-score-adj", "%d is not between -1000 and 1000", c.OOMScoreAdj)
	}
	if period := p.s.Proxy.ConfigSyncPeriod.Duration; period <= 0 {
		p.add("config-sync-period", "%s is not more than 0", period)
	}
	p.periods("ipvs", c.SyncPeriod, c.MinSyncPeriod)
	p.periods("iptables", c.IPTablesSyncPeriod, c.IPTablesMinSyncPeriod)
	p.bound("readyz-watch-bound", c.ReadyzWatchBound)
	if c.HealthzWatchBound != 0 {
		p.bound("healthz-watch-bound", c.HealthzWatchBound)
	}
	if c.APIServerProbe != 0 {
		p.bound("api-server-probe-period", c.APIServerProbe)
	}
	if !filepath.IsAbs(c.RunDir) {
		p.add("run-dir", "%q is not an absolute path", c.RunDir)
	}
}

// periods looks at those of one mode, whose name their flags begin with.
func (p *problems) periods(mode string, sync, least time.Duration) {
	syncFlag, minFlag := mode+"-sync-period", mode+"-min-sync-period"
	switch {
	case sync < time.Second:
		p.add(syncFlag, "%s is too short, at least 1s", sync)
	case least > sync:
		p.add(minFlag, "%s is longer than %s", least, p.s.with(syncFlag, sync.String()))
	}
	if least < 0 {
		p.add(minFlag, "%s is less than 0", least)
	}
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

// services looks at names of Services.
func (p *problems) services(flag string, names []string) []string {
	for i, s := range names {
		if namespace, name, both := strings.Cut(s, "/"); !both || namespace == "" || name == "" || strings.Contains(name, "/") {
			p.addAt(flag, i, "%q is not NAMESPACE/NAME", s)
		}
	}
	return names
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

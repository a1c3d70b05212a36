package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// Config is what the settings mean. It is immutable.
type Config struct {
	SourceDir     string
	Client        Client
	NodeName      string
	Scheduler     scheduler.Spec
	ExcludeCIDRs  []netip.Prefix
	StrictARP     bool
	DetectLocal   DetectLocal
	MasqueradeAll bool
	MasqueradeBit uint8
	IPTables      string // "" detects
	// NodePorts says where NodePorts answer, NodePortRange which ports are theirs:
	// masquerading keeps out of it.
	NodePorts     NodePortSelection
	NodePortRange PortRange
	// AllowExternalIPs: external IPs are served, those in ExternalIPCIDRs, or all
	// where it is empty.
	AllowExternalIPs bool
	ExternalIPCIDRs  []netip.Prefix
	// NodeAddresses stand in for a Node object that is not among the manifests.
	NodeAddresses []netip.Addr
	RunDir        string
	SyncPeriod    time.Duration
	LogLevel      string
	LogFormat     string
}

// Client says how the API server is reached. Where both addresses are empty it is
// the one of the cluster that the process runs in.
type Client struct {
	// Kubeconfig is a file, Master a URL that wins over the one in it.
	Kubeconfig, Master string
}

// DetectLocal says how pods of this node are told from everybody else.
type DetectLocal struct {
	Mode         string
	ClusterCIDRs []netip.Prefix
	Interface    string
}

// Socket is the path of the agent's unix socket.
func (c Config) Socket() string { return filepath.Join(c.RunDir, "agent.sock") }

// LogLevels and LogFormats list what --log-level and --logging-format take.
var (
	LogLevels  = []string{"debug", "info", "warn", "error"}
	LogFormats = []string{"text", "json"}
)

// The values of --detect-local-mode.
var localModes = []string{"ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"}

// Check turns settings into a Config. hostname is the host's own name, used
// where no other is given. All mistakes are reported together.
func (s Settings) Check(hostname string) (Config, error) {
	var p problems
	c := Config{
		SourceDir:     s.SourceDir,
		Client:        Client{Kubeconfig: s.Kubeconfig, Master: s.Master},
		NodeName:      p.nodeName(s.HostnameOverride, hostname),
		ExcludeCIDRs:  p.cidrs("--ipvs-exclude-cidrs", s.ExcludeCIDRs),
		StrictARP:     s.StrictARP,
		DetectLocal:   p.detectLocal(s),
		MasqueradeAll: s.MasqueradeAll,
		MasqueradeBit: uint8(s.MasqueradeBit),
		IPTables:      strings.TrimPrefix(s.IPTables, "auto"),
		NodePorts:     p.nodePorts(s.NodePortAddresses),
		NodePortRange: p.portRange(s.NodePortRange),

		AllowExternalIPs: p.featureGates(s.FeatureGates),
		ExternalIPCIDRs:  p.cidrs("--external-ip-allowed-cidrs", s.ExternalIPCIDRs),
		NodeAddresses:    p.addresses("--node-address", s.NodeAddresses),

		RunDir:     s.RunDir,
		SyncPeriod: s.SyncPeriod,
		LogLevel:   s.LogLevel,
		LogFormat:  s.LogFormat,
	}
	var err error
	if c.Scheduler, err = scheduler.Parse(s.Scheduler, ""); err != nil {
		p.add("--ipvs-scheduler", err.Error())
	}
	p.oneOf("--proxy-mode", s.ProxyMode, []string{"ipvs"})
	p.oneOf("--iptables-backend", s.IPTables, []string{"auto", "nft", "legacy"})
	p.oneOf("--log-level", s.LogLevel, LogLevels)
	p.oneOf("--logging-format", s.LogFormat, LogFormats)
	p.limits(s)
	return c, p.err()
}

// problems collects what is wrong.
type problems struct{ list []error }

func (p *problems) add(flag, reason string) {
	p.list = append(p.list, fmt.Errorf("%s: %s", flag, reason))
}

func (p *problems) err() error { return errors.Join(p.list...) }

func (p *problems) oneOf(flag, value string, allowed []string) {
	if !slices.Contains(allowed, value) {
		p.add(flag, fmt.Sprintf("%q is not one of %s", value, strings.Join(allowed, ", ")))
	}
}

func (p *problems) limits(s Settings) {
	if s.MasqueradeBit < 0 || s.MasqueradeBit > 31 {
		p.add("--iptables-masquerade-bit", fmt.Sprintf("%d is not a bit of the packet mark (0-31)", s.MasqueradeBit))
	}
	if s.SyncPeriod < time.Second {
		p.add("--ipvs-sync-period", fmt.Sprintf("%s is too short, at least 1s", s.SyncPeriod))
	}
	if !filepath.IsAbs(s.RunDir) {
		p.add("--run-dir", fmt.Sprintf("%q is not an absolute path", s.RunDir))
	}
}

// label is what a node's name may be (RFC 1123 subdomain).
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// nodeName trims and lower-cases, as kube-proxy does (contract section 1.6).
func (p *problems) nodeName(override, hostname string) string {
	name := strings.ToLower(strings.TrimSpace(override))
	switch {
	case override != "" && name == "":
		p.add("--hostname-override", "is blank")
	case name == "":
		name = strings.ToLower(strings.TrimSpace(hostname))
	}
	if name != "" && (!label.MatchString(name) || len(name) > 253) {
		p.add("--hostname-override", fmt.Sprintf("%q cannot be the name of a Node", name))
	}
	return name
}

func (p *problems) cidrs(flag string, list []string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range list {
		prefix, err := parsePrefix(text)
		if err != nil {
			p.add(flag, fmt.Sprintf("%q is not a CIDR such as 10.0.0.0/8", strings.TrimSpace(text)))
			continue
		}
		out = append(out, prefix)
	}
	return out
}

// parsePrefix reads a range. IPv4 written as IPv6 is refused: no address of either
// family would ever be found in it.
func parsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err == nil && prefix.Addr().Is4In6() {
		err = errors.New("is an IPv4 range written as IPv6")
	}
	return prefix.Masked(), err
}

// addresses takes what a machine can have and others can dial.
func (p *problems) addresses(flag string, list []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range list {
		text = strings.TrimSpace(text)
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
			p.add(flag, fmt.Sprintf("%q is not an address of a node such as 192.0.2.10", text))
			continue
		}
		out = append(out, a.Unmap())
	}
	return out
}

func (p *problems) detectLocal(s Settings) DetectLocal {
	d := DetectLocal{Mode: s.DetectLocalMode}
	switch s.DetectLocalMode {
	case "BridgeInterface":
		d.Interface = p.interfaceName("--pod-bridge-interface", s.PodBridge, d.Mode)
	case "InterfaceNamePrefix":
		d.Interface = p.interfaceName("--pod-interface-name-prefix", s.PodPrefix, d.Mode)
	default:
		p.oneOf("--detect-local-mode", s.DetectLocalMode, localModes)
	}
	d.ClusterCIDRs = p.clusterCIDR(s.ClusterCIDR)
	return d
}

// maxInterface is IFNAMSIZ without the terminating NUL.
const maxInterface = 15

func (p *problems) interfaceName(flag, name, mode string) string {
	switch {
	case name == "":
		p.add(flag, "is needed with --detect-local-mode="+mode)
	case len(name) > maxInterface || strings.ContainsAny(name, " \t\n/+\""):
		p.add(flag, fmt.Sprintf("%q cannot be (the beginning of) an interface's name", name))
	}
	return name
}

// clusterCIDR takes at most one range a family.
func (p *problems) clusterCIDR(text string) []netip.Prefix {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	list := p.cidrs("--cluster-cidr", strings.Split(text, ","))
	if len(list) > 2 || len(list) == 2 && list[0].Addr().Is4() == list[1].Addr().Is4() {
		p.add("--cluster-cidr", fmt.Sprintf("%q has more than one range of a family", text))
	}
	return list
}

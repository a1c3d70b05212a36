package events

import (
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// Kind has the fields of an Event besides its text. Kinds are constants of the program: the queue
// keeps each kind that was ever used.
type Kind struct {
	// Reason is the word people filter by; Action is the action that failed or happened. The API
	// wants both, at most 128 bytes each.
	Reason, Action string
	// Warning: an operator may have to act. Else the Event is of type Normal.
	Warning bool
}

// The kinds about the Node. The first three have kube-proxy's reasons and actions.
var (
	// Starting: the agent runs and follows the API.
	Starting = Kind{"Starting", "StartKubeProxy", false}
	// FailedToStartProxierHealthcheck: the health port cannot be listened on.
	FailedToStartProxierHealthcheck = Kind{"FailedToStartProxierHealthcheck", "StartKubeProxy", true}
	// FailedToStartMetricServer: the metrics port cannot be listened on.
	FailedToStartMetricServer = Kind{"FailedToStartMetricServer", "StartKubeProxy", true}
	// SchedulerUnavailable: the kernel lacks the node's scheduler, and rr replaces it.
	SchedulerUnavailable = Kind{"SchedulerUnavailable", "StartKubeProxy", true}
	// ProxyModeFallback: the kernel lacks what ipvs mode needs, and iptables mode runs
	// instead (internal/DECISIONS.md, Missing IPVS).
	ProxyModeFallback = Kind{"ProxyModeFallback", "StartKubeProxy", true}
	// RulesInNFTables: the node lacks iptables or ipset, and ipvs mode keeps its rules in nftables.
	RulesInNFTables = Kind{"RulesInNFTables", "StartKubeProxy", false}
	// ProxyModeImplied: a file of kube-proxy leaves the mode empty, and ipvs mode runs, where
	// kube-proxy would run iptables mode.
	ProxyModeImplied = Kind{"ProxyModeImplied", "StartKubeProxy", false}
	// ProxyModeAvailable: the kernel has what it lacked, and ipvs mode could be used.
	ProxyModeAvailable = Kind{"ProxyModeAvailable", "ChangeMode", false}
	// InvalidConfiguration: a new configuration file has a mistake; the old settings stay.
	InvalidConfiguration = Kind{"InvalidConfiguration", "Reload", true}
	// ConfigurationReloaded: a new configuration file is in force.
	ConfigurationReloaded = Kind{"ConfigurationReloaded", "Reload", false}
	// RestartNeeded: some settings of a new file wait for a restart.
	RestartNeeded = Kind{"RestartNeeded", "Reload", true}
	// NodeAnnotationRefused: an annotation of the Node is not followed.
	NodeAnnotationRefused = Kind{"AnnotationRefused", "ReadNode", true}
	// SysctlRefused: a sysctl that Services need is wrong and cannot be set, so that
	// nothing new is carried.
	SysctlRefused = Kind{"SysctlRefused", "Prepare", true}
	// FirewallBlocksServices: a filter of another program drops packets of Services.
	FirewallBlocksServices = Kind{"FirewallBlocksServices", "CheckFirewalls", true}
)

// The kinds about a Service. The last one is kube-proxy's.
var (
	// VIPConflictsWithNode: an address of the Service is not bound, because this or another
	// machine has it (internal/DECISIONS.md, Addresses of other machines; model.Host.Holder).
	VIPConflictsWithNode = Kind{"VIPConflictsWithNode", "Bind", true}
	// AddressConflict: another Service has the same address, port and protocol
	// (internal/DECISIONS.md, Conflicting Services).
	AddressConflict = Kind{"AddressConflict", "Bind", true}
	// ExternalIPRefused: an external IP is outside of --external-ip-allowed-cidrs.
	ExternalIPRefused = Kind{"ExternalIPRefused", "Bind", true}
	// TooManyFrontends: a Service has more frontends than it may have, and those beyond are
	// not served (--service-frontends).
	TooManyFrontends = Kind{"TooManyFrontends", "Bind", true}
	// TooManySourceRanges: a Service has more source ranges than it may have, and clients in
	// those beyond are not admitted (--service-source-ranges).
	TooManySourceRanges = Kind{"TooManySourceRanges", "Bind", true}
	// AnnotationRefused: an annotation of the Service, or of its slices, is not followed:
	// it cannot be read, the kernel lacks what it asks for, or it has no effect here.
	AnnotationRefused = Kind{"AnnotationRefused", "ReadPolicy", true}
	// FailedToStartServiceHealthcheck: the healthCheckNodePort cannot be listened on.
	FailedToStartServiceHealthcheck = Kind{"FailedToStartServiceHealthcheck", "Listen", true}
)

// eventType is the type the API knows the kind by.
func (k Kind) eventType() string {
	if k.Warning {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// Limits of the API on an Event, in bytes (validation of events.k8s.io/v1).
const (
	maxNote     = 1024
	maxInstance = 128
)

// cut shortens text to what fits into limit bytes, between two runes. Bytes that are no
// UTF-8 are replaced: text may quote a file or an error, and the API refuses them.
func cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

package config

import "github.com/kube-ipvs/kube-ipvs/scheduler"

// choices are the values of flags that take a few words.
var choices = map[string][]string{
	"proxy-mode":        {string(ModeIPVS), string(ModeIPTables), string(ModeAuto)},
	"on-missing-ipvs":   {string(OnMissingIPTables), string(OnMissingFail)},
	"iptables-backend":  {"auto", "nft", "legacy"},
	"rules":             {string(RulesAuto), string(RulesIPTables), string(RulesNFTables)},
	"watch-nodes":       {WatchAuto, WatchAll, WatchOwn},
	"external-binding":  {string(ExternalBindingAuto), string(ExternalBindingBind), string(ExternalBindingCapture)},
	"vip-binding":       {string(VIPBindingAddress), string(VIPBindingRoute)},
	"detect-local-mode": {"ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"},
	"log-level":         {"debug", "info", "warn", "error"},
	"logging-format":    {"text", "json"},
}

// Choices returns the words that a flag takes, in the order in which help names them, for
// shells that complete them. It returns nil for a flag that takes anything else.
func Choices(flag string) []string {
	switch flag {
	case "ipvs-scheduler":
		return scheduler.Names()
	case "nodeport-addresses":
		return []string{"primary", "localhost", "all"}
	case "ipvs-tcp-timeout":
		return []string{Recommended}
	}
	return choices[flag]
}

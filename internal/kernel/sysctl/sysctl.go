package sysctl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
)

// Policy is the consequence of a key that cannot be set.
type Policy uint8

const (
	// Wanted keys make the service better; without them it runs, degraded.
	Wanted Policy = iota
	// Required keys are those without which traffic does not pass.
	Required
)

// String returns the policy in a word.
func (p Policy) String() string {
	if p == Required {
		return "required"
	}
	return "wanted"
}

// Sysctl is a value the node should have. Key is written as sysctl(8) does, with
// dots; a dot inside a link's name is a slash. Why is shown to people.
type Sysctl struct {
	Key, Value string
	Why        string
	Policy     Policy
}

// String returns the assignment as sysctl(8) takes it.
func (s Sysctl) String() string { return s.Key + "=" + s.Value }

// IPVSOptions select among the sysctls of IPVS.
type IPVSOptions struct {
	// Release is the kernel's release, which decides on conn_reuse_mode as in
	// kube-proxy; the empty release leaves conn_reuse_mode alone.
	Release string
	// StrictARP keeps other links from answering ARP for service addresses.
	StrictARP bool
}

// IPVSSysctls returns the sysctls that IPVS needs, in kube-proxy's order. Two are missing on
// purpose: route_localnet, which would open the host's loopback addresses, and IPv6
// forwarding, with which a node ignores router advertisements. A Check reports the latter.
func IPVSSysctls(opts IPVSOptions) []Sysctl {
	all := []Sysctl{
		{Key: "net.ipv4.vs.conntrack", Value: "1", Policy: Required,
			Why: "replies are translated back by connection tracking"},
	}
	if reusesBadly(opts.Release) {
		all = append(all, Sysctl{Key: "net.ipv4.vs.conn_reuse_mode", Value: "0", Policy: Wanted,
			Why: "before Linux 5.9 a reused source port delays a connection by a second or sends it to a removed destination"})
	}
	all = append(all,
		Sysctl{Key: "net.ipv4.vs.expire_nodest_conn", Value: "1", Policy: Wanted,
			Why: "connections to a removed destination end at once"},
		Sysctl{Key: "net.ipv4.vs.expire_quiescent_template", Value: "1", Policy: Wanted,
			Why: "session affinity stops using a draining destination"},
		Sysctl{Key: "net.ipv4.ip_forward", Value: "1", Policy: Required,
			Why: "packets from clients to pods are forwarded"},
	)
	if opts.StrictARP {
		all = append(all,
			Sysctl{Key: "net.ipv4.conf.all.arp_ignore", Value: "1", Policy: Wanted,
				Why: "strict ARP: a link answers for its own addresses only"},
			Sysctl{Key: "net.ipv4.conf.all.arp_announce", Value: "2", Policy: Wanted,
				Why: "strict ARP: a link sends requests with its own addresses only"},
		)
	}
	return all
}

// RulesSysctls returns the sysctls of iptables mode. With localhost, NodePorts answer on
// loopback addresses of this machine (internal/DECISIONS.md, NodePorts on loopback).
func RulesSysctls(localhost bool) []Sysctl {
	all := []Sysctl{{Key: "net.ipv4.ip_forward", Value: "1", Policy: Required, Why: "packets from clients to pods are forwarded"}}
	if localhost {
		all = append(all, Sysctl{Key: "net.ipv4.conf.all.route_localnet", Value: "1", Policy: Required,
			Why: "NodePorts answer on loopback (localhostNodePorts)"})
	}
	return all
}

// reusesBadly reports whether a kernel has the key (since 4.1) but drops the first packet
// of a reused source port (until 5.9). A distribution may have the fix in an older release:
// its kernel then gets mode 0, too, under which a reused port keeps its old destination.
func reusesBadly(release string) bool {
	v, ok := procfs.ParseVersion(release)
	return ok && !v.Before(procfs.Version{Major: 4, Minor: 1}) && v.Before(procfs.Version{Major: 5, Minor: 9})
}

// Outcome is the result for a key.
type Outcome uint8

const (
	// Right: the key had the value; nothing was written.
	Right Outcome = iota + 1
	// Changed: the key has the value now.
	Changed
	// Missing: this kernel has no such key, or its module is not loaded.
	Missing
	// Refused: the key is wrong, or unreadable, and could not be set.
	Refused
	// Restored: the key has the value it had before us.
	Restored
	// Left: the key stays as it is, because another process changed it after us, or may
	// need it now.
	Left
)

var outcomeNames = [...]string{Right: "right", Changed: "changed", Missing: "missing",
	Refused: "refused", Restored: "restored", Left: "left"}

// String returns the outcome in a word.
func (o Outcome) String() string {
	if o >= Right && int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Result has the result for one key. Have is its value before the call, empty if it could not be
// read. Err is set if and only if it was refused. Note is something to know besides, such as that
// the journal could not be written.
type Result struct {
	Sysctl
	Outcome Outcome
	Have    string
	Note    string
	Err     error
}

// String returns the result in a line for people.
func (r Result) String() string {
	s := fmt.Sprintf("%s: %s", r.Sysctl, r.Outcome)
	if r.Outcome == Left {
		s = fmt.Sprintf("%s=%s: left (it was %s before kube-ipvs)", r.Key, r.Have, r.Value)
	} else if r.Have != "" && r.Outcome != Right {
		s += fmt.Sprintf(" (it was %s)", r.Have)
	}
	if r.Err != nil {
		s += ": " + r.Err.Error()
	}
	if r.Note != "" {
		s += "; " + r.Note
	}
	return s
}

// Demand fails where keys that are required were refused, with a remedy.
func Demand(results []Result) error {
	err := Failure(results, Required)
	if err == nil {
		return nil
	}
	var unset []string
	for _, r := range results {
		if r.Outcome == Refused && r.Policy == Required {
			unset = append(unset, r.Sysctl.String())
		}
	}
	return fmt.Errorf("%w; remedy: %s", err, OnHost(unset))
}

// OnHost is the remedy for keys that cannot be set from here.
func OnHost(assignments []string) string {
	return "on the host: sysctl -w " + strings.Join(assignments, " ") + "; or mount its /proc/sys/net at /host/proc/sys/net"
}

// Failure joins the errors of the refused keys that have the policy, or nil.
func Failure(results []Result, policy Policy) error {
	var errs []error
	for _, r := range results {
		if r.Outcome == Refused && r.Policy == policy {
			errs = append(errs, r.Err)
		}
	}
	return errors.Join(errs...)
}

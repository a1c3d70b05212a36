package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
)

// Options say what to start. The zero value is usable: a dual-stack cluster on 127.0.0.1 that leaves nothing behind.
type Options struct {
	// Binaries to run; empty means those that binaries.Find finds.
	Binaries binaries.Set
	// Dir keeps data, keys and logs. Empty means a temporary directory that Close removes.
	Dir string

	// Bind is the address that the API server listens on, 127.0.0.1 if left out. The unspecified address is allowed.
	Bind netip.Addr
	// Port of the API server; 0 means one that is free and that no client's connection can take while the server is away.
	Port int
	// Reached are more addresses under which clients reach the server; its certificate holds them, and Bind. A guest under
	// QEMU's user network reaches the host's loopback as HostFromGuest. The first that is not loopback is what the Service
	// "kubernetes" gets as its endpoint; without one it has none.
	Reached []netip.Addr

	ServiceCIDRs  []netip.Prefix // 10.96.0.0/16 and fd00:10:96::/112 if left out; the first is the preferred family
	NodePorts     string         // "30000-32767" if left out
	APIServerArgs []string       // more flags, which win over ours

	// Nodes prepares for controllers and kubelets, which the caller starts: ServiceAccounts are asked for, the Node authorizer is
	// on, and the server shows kubelets a certificate for exec and logs.
	Nodes bool

	// Log gets a line per step.
	Log io.Writer `json:"-"`
}

// HostFromGuest is where a guest of package vm finds the host's loopback.
var HostFromGuest = netip.MustParseAddr("10.0.2.2")

// Defaults fills the fields that were left out.
func (o *Options) Defaults() {
	if !o.Bind.IsValid() {
		o.Bind = netip.MustParseAddr("127.0.0.1")
	}
	if len(o.ServiceCIDRs) == 0 {
		o.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}
	}
	if o.NodePorts == "" {
		o.NodePorts = "30000-32767"
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
}

// Validate reports what the programs would report late and in other words.
func (o *Options) Validate() error {
	var errs []error
	if o.Port < 0 || o.Port > 65535 {
		errs = append(errs, fmt.Errorf("port %d: want 0 to 65535", o.Port))
	}
	if len(o.ServiceCIDRs) > 2 || len(o.ServiceCIDRs) == 2 && o.ServiceCIDRs[0].Addr().Is4() == o.ServiceCIDRs[1].Addr().Is4() {
		errs = append(errs, fmt.Errorf("service CIDRs %v: want one, or one of each family", o.ServiceCIDRs))
	}
	return errors.Join(errs...)
}

// local is the address that a client on this machine uses.
func (o *Options) local() netip.Addr {
	switch {
	case !o.Bind.IsUnspecified():
		return o.Bind
	case o.Bind.Is4():
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		return netip.IPv6Loopback()
	}
}

// advertised is the endpoint of the Service "kubernetes", or the zero Addr. Validation of endpoints refuses loopback addresses.
func (o *Options) advertised() netip.Addr {
	for _, addr := range append([]netip.Addr{o.Bind}, o.Reached...) {
		if !addr.IsLoopback() && !addr.IsUnspecified() {
			return addr
		}
	}
	return netip.Addr{}
}

// certified are the addresses in the server's certificate: those that clients use, and the first of each Service range, which the Service
// "kubernetes" gets.
func (o *Options) certified() []netip.Addr {
	addrs := append([]netip.Addr{o.local(), o.Bind}, o.Reached...)
	for _, services := range o.ServiceCIDRs {
		addrs = append(addrs, services.Masked().Addr().Next())
	}
	return addrs
}
